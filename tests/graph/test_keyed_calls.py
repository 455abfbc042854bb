"""Where keys meet the other calls: ingest, samples, maintained results, arithmetic."""

from __future__ import annotations

from collections import deque
from threading import Thread

import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
from dask import delayed as dask_delayed
from keyed_model import Model, check, keys_of
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch, InvalidBatch, InvalidOption, Operations, ReadError, UnknownVertex


def test_ingest_reads_here(place, tmp_path):
    frame = pd.DataFrame({"from": ["a", "b", "c"], "to": pd.Categorical(["b", "c", "a"]), "w": [1.0, 2.0, 3.0]})
    frame.to_parquet(tmp_path / "some.parquet")
    np.savez(tmp_path / "some.npz", src=np.array(["c"]), dst=np.array(["d"]), weight=[4.0])
    columns = {"source": "from", "target": "to", "weight": "w"}
    with DynamicGraph(place, weighted=True) as graph:
        assert [report.inserted for report in graph.ingest(frame, **columns)] == [3]
        assert graph.keys == "string"
        assert [report.updated for report in graph.ingest(tmp_path / "some.parquet", **columns)] == [3]
        assert graph.ingest([tmp_path / "some.npz"])[0].inserted == 1
        reports = graph.ingest(lambda rank, size, step: ([f"{rank}{size}{step}"], ["a"]) if step < 3 else None)
        assert [(report.inserted, report.epoch) for report in reports] == [(1, 4), (1, 5), (1, 6)]
        batch = EdgeBatch(["a", "x"], ["b", "y"], [9.0, 9.0], [-1, -1], keys="string")
        assert [(report.deleted, report.missing) for report in graph.ingest([batch, batch])] == [(1, 1), (0, 2)]
        assert graph.vertices().tolist() == ["a", "b", "c", "d", "010", "011", "012"]
        with pytest.raises(InvalidBatch, match="has type Operations; ingest takes these without keys, and execute"):
            graph.ingest([Operations(["insert"], ["a"], ["b"], keys="string")])
        with pytest.raises(InvalidBatch, match=r"dst\[0\] is missing.*step 1 of the ingest, epoch 10"):
            graph.ingest([(["a"], ["z"]), (["a"], [None])])
        with pytest.raises(ReadError, match="none.npz"):
            graph.ingest([tmp_path / "none.npz"])
        assert (graph.epoch, graph.num_vertices) == (9, 8)
    with DynamicGraph(place, 3) as graph, pytest.raises(InvalidBatch, match="a part has string keys"):
        graph.ingest(lambda rank, size, step: EdgeBatch(["a"], ["b"], keys="string"), steps=1)


def test_ingest_of_dasks_data(client):
    def fails():
        raise ZeroDivisionError("in a task")

    rng, model = fresh_rng(), Model()
    src, dst = (keys_of("string", ends) for ends in rng.integers(0, 40, (2, 300)))
    frame = pd.DataFrame({"from": src, "to": dst, "weight": rng.integers(1, 9, 300).astype(float)})
    cuts = [slice(at, at + 100) for at in (0, 100, 200)]
    counts = [model.update(src[cut], dst[cut], frame["weight"][cut].tolist(), [1] * 100) for cut in cuts]
    columns = {"source": "from", "target": "to"}
    with DynamicGraph(client, weighted=True) as graph:
        parts = [dask_delayed(frame)[cut] for cut in cuts]
        reports = graph.ingest([*parts[:2], client.scatter(frame[cuts[2]])], **columns)
        assert [(report.inserted, report.updated, report.deleted, report.missing) for report in reports] == counts
        check(graph, model, rng)
        collection = dask.dataframe.from_pandas(frame, npartitions=3)
        assert [report.inserted for report in graph.ingest(collection, **columns)] == [0, 0, 0]
        arrays = [dask.array.from_array(np.array(ends, object), chunks=150) for ends in (src, dst)]
        assert len(graph.ingest(tuple(arrays))) == 2
        assert (graph.epoch, graph.num_edges) == (8, len(model.edges))
        with pytest.raises(ZeroDivisionError, match="in a task"):
            graph.ingest([dask_delayed(([("a")], ["b"])), dask_delayed(fails)()])
        assert graph.epoch == 9
    with (
        DynamicGraph(keys="string") as graph,
        pytest.raises(InvalidOption, match="Dask's; it is ingested by a graph with"),
    ):
        graph.ingest(parts)


def same_graphs(seed, **options):
    """A graph with keys, the same graph with their places as ids, and the keys."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, 30, (2, 150))
    words = np.array([f"k{i * 37 % 30}" for i in range(30)], object)
    named = DynamicGraph(keys="string", **options)
    named.insert(words[places[0]], words[places[1]])
    where = {key: i for i, key in enumerate(named.vertices())}
    plain = DynamicGraph(n_vertices=len(where), **options)
    plain.insert(*([where[words[i]] for i in ends] for ends in places))
    return named, plain, named.vertices()


@pytest.mark.parametrize("directed", [True, False])
def test_samples_pairs_and_trusses_are_of_keys(directed):
    named, plain, keys = same_graphs(fresh_rng().integers(2**32), directed=directed, reverse=directed)
    with named, plain:
        ids = [4, 0, 9]
        walks = plain.random_walks(ids, 6, seed=5)
        np.testing.assert_array_equal(named.random_walks(keys[ids], 6, seed=5), keys[walks])
        sample, wanted = (g.sample_neighbors(s, [3, 2], seed=6) for g, s in ((named, keys[ids]), (plain, ids)))
        np.testing.assert_array_equal(sample.node, keys[wanted.node])
        np.testing.assert_array_equal(sample.row, wanted.row)
        pairs = [(0, 3), (5, 5), (7, 2)]
        for call in ("jaccard", "overlap"):
            of_keys = getattr(named, call)([(keys[u], keys[v]) for u, v in pairs])
            np.testing.assert_array_equal(of_keys, getattr(plain, call)(pairs))
        assert len(named.jaccard(np.empty((0, 2), object))) == 0
        if not directed:
            found, wanted = named.k_truss(3), plain.k_truss(3)
            assert found.src.to_arrow().to_pylist() == keys[wanted.src].tolist()
            assert named.update(found).updated == len(wanted)
        with pytest.raises(UnknownVertex, match=r"starts\[1\] is 'none'"):
            named.random_walks([keys[0], "none"], 3)
        with pytest.raises(InvalidOption, match=rf"seeds\[1\] is '{keys[3]}', which comes before"):
            named.sample_neighbors([keys[3], keys[3]], [1], direction="out")
        with pytest.raises(UnknownVertex, match=r"pairs\[:, 1\]\[0\] is 'none'"):
            named.jaccard([(keys[0], "none")])


@pytest.mark.parametrize(
    "form", [list, tuple, deque, lambda pairs: np.array(pairs, object)], ids=["list", "tuple", "deque", "array"]
)
def test_strings_in_pairs_are_not_changed(form):
    with DynamicGraph(keys="string") as graph:
        graph.insert(["a\0", "a", "b"], ["c", "d", "c"])
        assert graph.jaccard(form([("a\0", "b"), ("a", "b")])).tolist() == [1, 0]
        with pytest.raises(InvalidOption, match="is 1; the graph's keys are strings"):
            graph.overlap(form([("a", 1)]))


@pytest.mark.parametrize("eager", [False, True])
def test_a_maintained_result_follows_keys(place, eager):
    with DynamicGraph(place, keys="int64") as graph:
        graph.insert([10**12, -5], [-5, 7])
        with graph.maintain("bfs", eager=eager, source=-5) as live:
            changes = [
                lambda: graph.insert([7], [99]),
                lambda: graph.delete_vertices([10**12]),
                lambda: graph.insert([99], [10**12]),
                lambda: graph.delete([-5], [7]),
            ]
            for change in changes:
                change()
                assert live.result().to_series().to_dict() == graph.bfs(-5).to_series().to_dict()


@pytest.mark.parametrize("names", [[0, 1, 2, 3], ["a", "b", "c", "d"]])
def test_a_series_is_aligned_by_its_index(names):
    with DynamicGraph() as graph:
        graph.insert(names[:3], names[1:])
        rank = graph.pagerank(dtype="float64")
        series, twice = rank.to_series()[::-1], 2 * rank.to_numpy()
        np.testing.assert_allclose((rank + series).to_numpy(), twice)
        np.testing.assert_allclose((series + rank).to_numpy(), twice)
        np.testing.assert_allclose(graph.pagerank(start=series, max_iter=0).to_numpy(), twice / 2, rtol=1e-6)
        one, other = pd.Series({names[2]: 2}), {names[0]: 1.0, names[3]: 3.0}
        for argument in ("personalization", "dangling"):
            want = graph.pagerank(**{argument: one.to_dict()}).to_numpy()
            assert graph.pagerank(**{argument: one}).to_numpy().tolist() == want.tolist()
        both = graph.pagerank(personalization=[one, pd.Series(other)])
        assert both.to_numpy().tolist() == graph.pagerank(personalization=[one.to_dict(), other]).to_numpy().tolist()
        for call in (lambda s: graph.pagerank(start=s), lambda s: graph.pagerank(personalization=s)):
            with pytest.raises(InvalidOption, match=f"index.* {names[1]!r} more than once"):
                call(pd.Series([1.0, 2.0], [names[1]] * 2))
            with pytest.raises(InvalidOption, match=rf"\[{names[0]!r}\] is 'x'; it must be a number"):
                call(pd.Series(["x"], names[:1]))
        with pytest.raises(UnknownVertex, match="index"):
            graph.pagerank(personalization=pd.Series([1.0], [99 if names[0] == 0 else "z"]))


def test_arithmetic_aligns_by_key(place):
    with DynamicGraph(place, keys="string") as graph:
        graph.insert(["a", "b", "c"], ["b", "c", "d"])
        rank = graph.pagerank()
        series = rank.to_series()
        np.testing.assert_allclose((rank + series[::-1]).to_numpy(), 2 * rank.to_numpy())
        with pytest.raises(
            InvalidOption, match="the index of an operand has 3 rows; it must name each of 4 vertices once"
        ):
            rank + series[:3]
        with pytest.raises(UnknownVertex, match="'z'"):
            rank + series.rename({"a": "z"})
        graph.delete_vertices(["a"])
        other = r"a result of pagerank at epoch 1, of another graph or of other vertices; its to_series\(\) is aligned"
        with pytest.raises(InvalidOption, match=other):
            graph.pagerank() * rank
        gathered = graph.gather(pd.Series({"d": 3.0, "c": 2.0, "b": 1.0}), "sum", direction="out")
        assert gathered.to_series().to_dict() == {"b": 2.0, "c": 3.0, "d": 0.0}


def test_results_of_a_graph_with_keys_in_one_without_them(place):
    """And the other way. They were taken by their places."""
    with (
        DynamicGraph(place, 6, reverse=True) as graph,
        DynamicGraph(place, keys="int64", reverse=True) as keyed,
        DynamicGraph(place, keys="string") as words,
    ):
        graph.insert([0, 1, 2, 3, 4, 5, 3], [1, 2, 3, 4, 5, 0, 5])
        keyed.insert([5, 3, 4, 1, 0], [3, 4, 1, 0, 2])
        words.insert(list("abcde"), list("bcdef"))
        once = {"max_iter": 1, "tol": 10.0}
        other = "of another graph or of other vertices"
        for here, there in ((graph, keyed), (keyed, graph)):
            rank, labels = there.pagerank(), there.label_propagation()
            values = (rank, rank.to_series())
            for found, wanted in (
                [here.pagerank(start=each, **once).to_numpy() for each in values],
                [here.pagerank(personalization=each).to_numpy() for each in values],
                [here.katz_centrality(beta=each).to_numpy() for each in values],
                [here.gather(each, "sum", direction="out").to_numpy() for each in values],
            ):
                np.testing.assert_array_equal(found, wanted)
            assert here.modularity(labels) == here.modularity(labels.to_series())
            with pytest.raises(InvalidOption, match=other):
                here.pagerank() - rank
            with pytest.raises(InvalidOption, match=other):
                assert here.label_propagation() == labels
            with pytest.raises(InvalidOption, match=r"start: its vertices(\[0\] is a string| are strings)"):
                here.pagerank(start=words.pagerank())
            with pytest.raises(InvalidOption, match=r"start: its vertices\[0\] is \d"):
                words.pagerank(start=rank)
        keyed.delete_vertices([2])
        keyed.insert([9], [3])
        with pytest.raises(UnknownVertex, match="labels has a value of 9, which is no vertex"):
            graph.modularity(keyed.label_propagation())


def test_values_of_other_vertices_are_refused(place):
    """They were left out, and the vertices without a value got the mean."""
    with DynamicGraph(place, keys="string", reverse=True) as graph, DynamicGraph(place, keys="string") as other:
        graph.insert(["a", "b"], ["b", "c"])
        other.insert(["a", "b"], ["b", "z"])
        for values in (pd.Series({"a": 1, "b": 1, "z": 1}), other.degree_centrality()):
            with pytest.raises(UnknownVertex, match="values has a value of 'z', which is no vertex of the graph"):
                graph.gather(values)
        with pytest.raises(UnknownVertex, match="labels has a value of 'z'"):
            graph.modularity(pd.Series({"a": 1, "b": 1, "z": 1}))
        with pytest.raises(UnknownVertex, match="beta has a value of 'z'"):
            graph.katz_centrality(beta=other.pagerank())
        assert graph.pagerank(start=other.pagerank()).converged  # a start needs no value for each vertex


def test_a_graph_of_networkx_is_of_one_epoch(monkeypatch):
    """A thread that deletes a vertex comes before both reads, or after them."""
    read, threads = DynamicGraph.vertices, []

    def interrupted(self):
        vertices = read(self)
        if not threads:
            threads.append(Thread(target=self.delete_vertices, args=(["b"],)))
            threads[0].start()
            threads[0].join(0.3)
        return vertices

    with DynamicGraph() as graph:
        graph.insert(["a", "b"], ["b", "c"])
        monkeypatch.setattr(DynamicGraph, "vertices", interrupted)
        assert sorted(graph.to_networkx().edges) == [("a", "b"), ("b", "c")]
        threads[0].join()
        assert sorted(graph.to_networkx()) == ["a", "c"]
