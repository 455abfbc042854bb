"""A user's handles to columns that lie on ranks: by users' ids, whatever the order and the ranges were and are."""

from __future__ import annotations

import gc
import pickle
import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from graph_model import GraphModel
from plain_graph import PlainGraph, cuts, fresh_rng, numberings

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import Algorithm, Vertex, VertexData
from mgraph.client.results.remote_columns import RemoteColumns
from mgraph.client.results.results import VertexIds, VertexValues
from mgraph.client.results.run import run_algorithm
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphClosed, InvalidOption
from mgraph.failures import Stale
from mgraph.partition import Partition

COLUMNS = {"marks": "value", "before": "vertex"}


def marks(rank: int, inside: np.ndarray, root: int = -1, data: np.ndarray | None = None, dtype: str = "float32"):
    """A number by internal id; and the internal id before each, -1 for the first. `data` is added where it is given."""
    assert data is None or len(data) == len(inside)
    numbers = (inside * 7 % 5 + (0 if data is None else data)).astype(dtype)
    return {"marks": numbers, "before": inside.astype(np.int64) - 1}, {"rounds": 3, "root": root}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    known = Algorithm("marks", lambda facts, **given: given, marks, COLUMNS, ("rounds", "root"), lambda shard: None)
    monkeypatch.setitem(ALGORITHMS, "marks", known)


@pytest.fixture
def lost():
    """Columns that were lost with a worker, and the keys of results that are freed on the workers."""
    freed: list[str] = []
    caller = SimpleNamespace(status=SimpleNamespace(incarnation=0), epoch=1, forget=freed.append)
    columns = partial(RemoteColumns, caller, None, "marks", epoch=1, dtypes={}, info={}, kinds={})
    remote = columns(key="lost")
    caller.status.incarnation = 1
    return remote, columns, freed


def test_columns_that_two_threads_compute_again_are_freed_but_once(lost):
    remote, columns, freed = lost

    def again() -> RemoteColumns:
        remote.again = lambda: columns(key="of another thread")
        thread = threading.Thread(target=remote.read, args=(list,))
        thread.start()
        thread.join()
        return columns(key="late")

    remote.again = again
    remote.read(list)
    assert (remote.key, freed) == ("of another thread", ["late"])
    remote.close()
    assert freed == ["late", "of another thread"]


def test_columns_that_are_closed_while_they_are_computed_again_stay_closed(lost):
    remote, columns, freed = lost

    def again() -> RemoteColumns:
        remote.close()
        return columns(key="late")

    remote.again = again
    remote.read(list)
    assert remote.closed
    assert freed == ["lost", "late"]


def plain(numbering: Numbering) -> PlainGraph:
    return PlainGraph(GraphModel(numbering.n_vertices), numbering, {"marks": marks})


def run(graph: PlainGraph, **args) -> VertexValues:
    return run_algorithm(graph, "marks", lambda _: args, graph.numbering)


def wanted(numbering: Numbering) -> np.ndarray:
    return (numbering.inside(np.arange(numbering.n_vertices)).astype(np.int64) * 7 % 5).astype(np.float32)


@pytest.mark.parametrize("n", [0, 1, 2, 40])
def test_values_come_by_users_ids(n):
    for numbering in numberings(fresh_rng(), n):
        result = run(plain(numbering))
        want = wanted(numbering)
        assert (len(result), result.dtype, result.epoch, result.name) == (n, np.float32, 0, "marks")
        np.testing.assert_array_equal(result.to_numpy(), want)
        assert list(result) == want.tolist()
        assert np.asarray(result).dtype == np.float32
        np.testing.assert_array_equal(np.asarray(result, np.float64), want)
        with pytest.raises(ValueError, match="an array of them is always a copy"):
            np.array(result, copy=False)


@pytest.mark.parametrize("n", [0, 1, 2, 40])
def test_the_largest_are_those_of_all_ranks(n):
    for numbering in numberings(fresh_rng(), n):
        result, want = run(plain(numbering)), wanted(numbering)
        for k in (0, 1, 5, n, n + 3):
            best = result.top(k)
            assert [value for _, value in best] == sorted(want.tolist(), reverse=True)[:k]
            assert len({vertex for vertex, _ in best}) == min(k, n)
            assert all(want[vertex] == value for vertex, value in best)
            assert all(type(vertex) is int for vertex, _ in best)
            alike = [vertex for vertex, value in best if value == best[0][1]]
            assert alike == sorted(alike)


@pytest.mark.parametrize("n", [0, 1, 2, 40])
def test_vertices_in_a_column_are_users_ids_and_none_stays_none(n):
    for numbering in numberings(fresh_rng(), n):
        before = run(plain(numbering)).before
        assert isinstance(before, VertexIds)
        inside, users = numbering.inside(np.arange(n)), numbering.outside(np.arange(n))
        want = [int(users[place - 1]) if place else -1 for place in inside.tolist()]
        assert (before.dtype, before.to_numpy().tolist()) == (np.int64, want)


def test_later_ranges_orders_and_vertices_do_not_touch_a_result():
    rng = fresh_rng()
    for numbering in numberings(rng, 40):
        graph = plain(numbering)
        result, want = run(graph), wanted(numbering)
        moved = numbering.moved(cuts(rng, 40, numbering.partition.size).grown(5))
        graph.numbering = Numbering(moved.partition, rng.permutation(45).astype(np.uint32), moved.generation + 1)
        np.testing.assert_array_equal(result.to_numpy(), want)
        assert len(result) == 40
        assert len(run(graph).to_numpy()) == 45


def test_ranges_that_moved_before_an_algorithm_ran_are_those_of_its_result():
    """An algorithm takes no ranges: only another order makes its question stale."""
    graph = plain(Numbering(Partition((0, 5, 40)), fresh_rng().permutation(40).astype(np.uint32)))
    known = graph.numbering
    graph.numbering = known.moved(Partition((0, 30, 45)))
    result = run_algorithm(graph, "marks", lambda _: {}, known)
    assert len(result) == 45
    np.testing.assert_array_equal(result.to_numpy(), wanted(graph.numbering))
    graph.numbering = Numbering(known.partition, None, known.generation + 1)
    with pytest.raises(Stale):
        run_algorithm(graph, "marks", lambda _: {}, known)
    assert len(graph.forgotten) == 1  # what some ranks may have finished


# ---- arguments -------------------------------------------------------------------------------------------------------


def test_a_vertex_reaches_the_program_by_its_internal_id():
    for numbering in numberings(fresh_rng(), 40):
        for user in (0, 17, 39):
            assert run(plain(numbering), root=Vertex(user)).root == numbering.inside(np.arange(40))[user]


@pytest.mark.parametrize("given", [list, np.array, lambda a: np.array(a, np.int16), tuple])
def test_an_array_by_users_ids_reaches_the_owners(given):
    rng = fresh_rng()
    data = rng.integers(0, 100, 40).tolist()
    for numbering in numberings(rng, 40):
        result = run(plain(numbering), data=VertexData(given(data)))
        np.testing.assert_array_equal(result.to_numpy(), wanted(numbering) + np.array(data))


def test_vertices_past_the_end_of_an_array_get_its_mean():
    for numbering in numberings(fresh_rng(), 40):
        for data, mean in (([1.0, 5.0], 3), ([], 1)):
            found = run(plain(numbering), data=VertexData(data)).to_numpy() - wanted(numbering)
            assert found.tolist() == [*data, *[mean] * (40 - len(data))]


@pytest.mark.parametrize("data", [[[1]], ["a"], np.zeros(41), 3.0, [1j]], ids=str)
def test_what_is_no_number_for_each_vertex(data):
    graph = plain(Numbering(Partition((0, 5, 40))))
    message = r"data has shape .* one for each vertex|data\[0\] is .*; it must be a number"
    with pytest.raises(InvalidOption, match=message):
        run(graph, data=VertexData(data))
    for masked, what in ((np.ma.array([1, 2], mask=[0, 1]), "masked"), ([[1], [2, 3]], "cannot be made an array")):
        with pytest.raises(InvalidOption, match=f"data.* {what}"):
            run(graph, data=VertexData(masked))
    assert graph.asked == []


@pytest.mark.parametrize("what", ["same", "moved", "ordered"])
def test_an_earlier_result_reaches_the_owners_of_now(what):
    rng = fresh_rng()
    for numbering in numberings(rng, 40):
        graph = plain(numbering)
        first = run(graph, data=VertexData(rng.integers(0, 100, 40)))
        kept, after = first.to_numpy(), numbering
        if what == "moved":
            after = numbering.moved(cuts(rng, 40, numbering.partition.size))
        elif what == "ordered":
            after = Numbering(numbering.partition, rng.permutation(40).astype(np.uint32), numbering.generation + 1)
        graph.numbering, graph.asked = after, []
        result = run(graph, data=VertexData(first))
        np.testing.assert_array_equal(result.to_numpy(), wanted(after) + kept)
        assert graph.asked.count("fetch") == (2 if what == "ordered" else 1)  # else it never leaves the ranks


def test_a_result_of_another_graph_is_an_array():
    one, other = plain(Numbering(Partition((0, 5, 40)))), plain(Numbering(Partition((0, 40))))
    result = run(one, data=VertexData(run(other)))
    np.testing.assert_array_equal(result.to_numpy(), 2 * wanted(one.numbering))
    closed = run(other)
    closed.close()
    with pytest.raises(GraphClosed, match="this result of marks .epoch 0. was closed"):
        run(one, data=VertexData(closed))


# ---- the end, and how it looks ---------------------------------------------------------------------------------------


def test_columns_are_freed_once_by_close_or_with_the_last_reference():
    graph = plain(Numbering(Partition((0, 5, 40))))
    result, other = run(graph), run(graph)
    before = result.before
    del result
    gc.collect()
    assert graph.forgotten == []
    assert len(before.to_numpy()) == 40  # the columns are held together
    before.close()
    before.close()
    assert len(graph.forgotten) == 1
    for call in (before.to_numpy, before.head, before.__iter__, before.__array__):
        with pytest.raises(GraphClosed, match="this result of marks .epoch 0. was closed"):
            call()
    del before
    gc.collect()
    assert len(graph.forgotten) == 1
    del other
    gc.collect()
    assert len(graph.forgotten) == 2


def test_how_a_result_shows_itself():
    result = run(plain(Numbering(Partition((0, 5, 40)))))
    assert str(result) == "<marks: 40 float32 values at epoch 0, rounds 3, root -1>"
    assert str(result.before) == "<marks before: 40 int64 values at epoch 0, rounds 3, root -1>"
    assert repr(result).splitlines()[0] == str(result)
    assert str(result.named("mine", error=1 / 3)) == "<mine: 40 float32 values at epoch 0, error 0.333333>"
    assert result._repr_html_().count("<tr>") == 1 + 5 + 1 + 5
    assert (result.rounds, result.info) == (3, {"rounds": 3, "root": -1})
    assert {"rounds", "root", "before", "to_numpy"} <= set(dir(result))
    result.close()
    assert repr(result).endswith("root -1, closed>")


@pytest.mark.parametrize("k", [-1, 1.5, "3", None])
def test_how_many_is_a_whole_number(k):
    with pytest.raises(InvalidOption, match="k must be"):
        run(plain(Numbering(Partition((0, 40))))).top(k)


def test_what_a_result_does_not_have():
    result = run(plain(Numbering(Partition((0, 40)))))
    known = "'before', 'marks', 'root', 'rounds', and the methods of VertexValues, such as top"
    with pytest.raises(AttributeError, match=f"marks has no 'after'; it has {known}"):
        result.after  # noqa: B018
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(result)
    with pytest.raises(AttributeError):
        VertexValues.__new__(VertexValues).rounds  # noqa: B018  what pickle and copy ask of an object without a state
