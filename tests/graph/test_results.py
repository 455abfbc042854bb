"""What algorithms leave on the workers, and how they fail; with a program of the test's own, registered there."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from graph_clusters import add_algorithm, assert_clean

from mgraph import DynamicGraph, GraphClosed, InvalidBatch, InvalidOption, UnknownVertex
from mgraph.errors import CapacityError

N = 20


def register() -> None:
    """Add the test's program, which gives each vertex a value by its internal id; runs in a worker."""
    import numpy as np

    from mgraph.errors import CapacityError

    def squares(shard, bits=32, fails=-1):
        shard.exchange.barrier()
        if shard.rank == fails:
            raise CapacityError(f"{shard}: no room")
        shard.exchange.barrier()
        values = (np.arange(shard.lo, shard.hi) % 7).astype(f"float{bits}")
        return {"square": values}, {"iterations": 3}

    add_algorithm("squares", squares, ["square"], ["iterations"])


def register_in(place) -> None:
    register()  # the arguments are checked here
    if place is not None:
        place.run(register)


def results_held(place, graph) -> list[int]:
    """How many results each shard of a place with one graph holds."""
    if place is None:
        return [len(graph._directory.coordinator._session.calls.shard.results)]
    return [n for worker in place.run(held).values() for n in worker]


def held(dask_worker) -> list[int]:
    """How many results each shard of a worker holds; runs there."""
    found = []
    for session in dask_worker.plugins["mgraph"].table.sessions.values():
        found.append(len(session.thread._servant.shard.results))
    return found


@pytest.fixture(scope="module")
def order():
    return np.random.default_rng(4).permutation(N)


@pytest.fixture
def graph(place, order):
    with DynamicGraph(place, N, order=order) as graph:
        register_in(place)
        graph.insert([0], [1])
        yield graph


def test_values_come_by_users_ids(graph, order):
    result = graph.run("squares")
    want = (order % 7).astype(np.float32)
    graph.insert([1], [2])
    assert (result.epoch, graph.epoch) == (1, 2)
    assert (len(result), result.dtype, result.iterations) == (N, np.float32, 3)
    np.testing.assert_array_equal(result.to_numpy(), want)
    np.testing.assert_array_equal(np.asarray(result), want)
    assert np.asarray(result, np.float64).dtype == np.float64
    assert str(result) == "<squares: 20 float32 values at epoch 1, iterations 3>"
    title, head, *rows = repr(result).splitlines()
    assert (title, head.split(), len(rows)) == (str(result), ["vertex", "square"], 11)
    shown = [(i, want[i]) for i in (*range(5), *range(N - 5, N))]
    assert [row.split() for row in rows if "..." not in row] == [[str(i), f"{value:g}"] for i, value in shown]
    assert pytest.importorskip("pandas").Series(result).tolist() == want.tolist()
    for k in (0, 1, 5, N, N + 5):
        best = np.lexsort((np.arange(N), -want))[:k]
        assert [value for _, value in result.top(k)] == want[best].tolist()
        assert all(want[vertex] == value for vertex, value in result.top(k))
    assert len(set(result.top(N))) == N


def test_values_of_some_vertices(graph, order):
    result = graph.run("squares")
    want = (order % 7).astype(np.float32)
    graph.add_vertices(5)
    graph.rebalance()
    graph.reorder()
    rng = np.random.default_rng(1)
    for ids in (rng.integers(0, N, 30), [3], np.array([], int), rng.permutation(N).astype(np.uint8)):
        found = result[ids]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, want[ids])
    for part in (slice(None), slice(3, 9), slice(9, 3, -2), slice(-4, None), slice(N, None)):
        np.testing.assert_array_equal(result[part], want[part])
    assert [result[vertex] for vertex in range(N)] == want.tolist() == list(result)
    assert type(result[np.uint8(3)]) is float
    assert [vertex in result for vertex in (0, N - 1, np.uint8(3), N, -1, 0.5, "ada", [0])] == [True] * 3 + [False] * 5
    for bad, error, message in [
        (N, UnknownVertex, f"vertex is {N}; the graph has {N} vertices"),
        (-1, UnknownVertex, "vertex is -1"),
        ([0, N], UnknownVertex, rf"vertices\[1\] is {N}"),
        ([0, -1], InvalidBatch, r"vertices\[1\] is -1"),
        ("ada", InvalidOption, "vertex is 'ada'"),
        (np.ones(N, bool), InvalidBatch, "is a mask of 20 values"),
    ]:
        with pytest.raises(error, match=message):
            result[bad]


def test_series_and_frames(graph):
    pandas = pytest.importorskip("pandas")
    search = graph.bfs(0, predecessors=True)
    series = search.to_series()
    assert (series.name, series.index.name, series.dtype) == ("distance", "vertex", np.int32)
    assert series.tolist() == search.to_numpy().tolist()
    frame = search.to_pandas()
    assert list(frame.columns) == ["distance", "predecessors"]
    assert frame.loc[1].tolist() == [1, 0]
    pandas.testing.assert_series_equal(frame["predecessors"], search.predecessors.to_series())
    assert search.predecessors[[1, 2]].tolist() == [0, -1]
    pyarrow = pytest.importorskip("pyarrow")
    assert pyarrow.array(search).to_pylist() == series.tolist()
    assert pyarrow.array(search).type == pyarrow.int32()
    np.testing.assert_array_equal(np.from_dlpack(search), search.to_numpy())
    assert graph.pagerank().to_series().nlargest(3).index.tolist()[0] == 1


def test_values_belong_to_the_vertices_there_were(graph):
    result = graph.run("squares")
    graph.add_vertices(5)
    assert len(result) == len(result.to_numpy()) == N
    assert len(graph.run("squares").to_numpy()) == N + 5


def test_a_program_fails_on_one_rank_and_the_graph_goes_on(graph):
    for rank in range(len(graph.workers)):
        with pytest.raises(CapacityError, match=f"rank {rank}: no room"):
            graph.run("squares", fails=rank)
    assert len(graph.run("squares").to_numpy()) == N


def test_results_are_freed_when_closed_or_forgotten(place, graph):
    results = [graph.run("squares") for _ in range(3)]
    assert results_held(place, graph) == [3] * len(graph.workers)
    results[0].close()
    results[0].close()
    with pytest.raises(GraphClosed, match="this result of squares .epoch 1. was closed"):
        results[0].to_numpy()
    del results[1]
    gc.collect()
    graph.degrees([0])
    assert results_held(place, graph) == [1] * len(graph.workers)


def test_predecessors_live_as_long_as_their_search(place, graph):
    search = graph.bfs(0, predecessors=True)
    held_bytes = graph.nbytes
    predecessors = search.predecessors
    assert predecessors.epoch == search.epoch == 1
    assert repr(predecessors).startswith(f"<bfs predecessors: {len(search)} int64 values at epoch 1")
    del search
    gc.collect()
    assert predecessors.to_numpy().tolist() == [-1, 0, *[-1] * (N - 2)]
    predecessors.close()  # frees both
    with pytest.raises(GraphClosed, match="this result of bfs .epoch 1. was closed"):
        predecessors.to_numpy()
    graph.degrees([0])
    assert held_bytes - graph.nbytes == N * (4 + 8)
    with pytest.raises(AttributeError, match="has no 'predecessors'"):
        graph.bfs(0).predecessors  # noqa: B018


def test_results_of_a_closed_graph(place, graph):
    result = graph.run("squares")
    graph.close()
    with pytest.raises(GraphClosed, match="is closed"):
        result.to_numpy()
    assert_clean(place)


def test_a_result_keeps_its_graph(place):
    graph = DynamicGraph(place, N)
    register_in(place)
    result = graph.run("squares")
    del graph
    gc.collect()
    assert len(result.to_numpy()) == N
    del result
    gc.collect()
    assert_clean(place)


def test_how_results_of_every_kind_show_themselves():
    with DynamicGraph(keys="string") as graph:
        graph.insert(["a", "<b>"], ["<b>", "c"])
        found = graph.bfs("a", predecessors=True)
        table = [line.split() for line in repr(found.predecessors).splitlines()[1:]]
        assert table == [["vertex", "predecessors"], ["a"], ["<b>", "a"], ["c", "<b>"]]
        assert "<td>&lt;b&gt;</td><td>1</td>" in found._repr_html_()
        rows = graph.distances(["a", "c"])
        assert [line.split() for line in repr(rows).splitlines()[1:3]] == [["vertex", "0", "1"], ["a", "0", "-1"]]
        many = graph.distances(["a"] * 7)
        assert repr(many).splitlines()[1].split() == ["vertex", "0", "1", "2", "3", "4", "..."]
        found.close()
        assert repr(found) == str(found)
    assert repr(rows) == str(rows)  # the graph is closed
    with DynamicGraph(n_vertices=0) as empty:
        assert repr(empty.pagerank()) == str(empty.pagerank())
