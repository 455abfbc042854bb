"""Graphs whose vertices have users' own keys: here and on a cluster, against a dict of edges and NetworkX."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import dask.array
import dask.dataframe
import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dask import delayed as dask_delayed
from graph_clusters import HERE, assert_clean, on
from interrupts import ctrl_c, when
from keyed_model import Model, keys_of
from plain_graph import fresh_rng
from steps import before, refuse, rest

from mgraph import (
    CapacityError,
    DynamicGraph,
    EdgeBatch,
    InvalidBatch,
    InvalidOption,
    NoPath,
    Operations,
    ReadError,
    UnknownVertex,
)  # fmt: skip
from mgraph.structures import names

KINDS = ["int64", "string"]


def check(graph: DynamicGraph, model: Model, rng: np.random.Generator) -> None:
    """Everything that a graph says, in keys."""
    names = list(model.vertices)
    assert graph.vertices().tolist() == names
    assert (graph.num_vertices, graph.num_edges) == (len(names), len(model.edges))
    if not names:
        return
    asked = [names[i] for i in rng.integers(0, len(names), 10)]
    rows, out = graph.neighbors(asked), model.networkx()
    for row, (first, end) in enumerate(pairwise(rows.offsets.tolist())):
        assert sorted(rows.dst[first:end].tolist()) == sorted(out.adj[asked[row]])
        found = zip(rows.dst[first:end].tolist(), rows.weight[first:end], strict=True)
        there = {model.key(asked[row], v): w for v, w in found}
        assert there == {edge: model.edges[edge] for edge in there}
    assert graph.degrees(asked).tolist() == [len(out.adj[key]) for key in asked]
    assert graph.degrees().tolist() == [len(out.adj[key]) for key in names]
    ends = [asked, asked[::-1]]
    assert graph.has_edges(*ends).tolist() == [out.has_edge(u, v) for u, v in zip(*ends, strict=True)]
    levels = graph.bfs(asked[0]).to_series()
    expected = nx.single_source_shortest_path_length(out, asked[0])
    assert levels[levels >= 0].to_dict() == expected
    ranks = graph.pagerank(tol=1e-10, dtype="float64").to_series()
    assert ranks.to_dict() == pytest.approx(nx.pagerank(out, tol=1e-10, max_iter=1000), abs=1e-6)
    assert graph.connected_components().components == nx.number_connected_components(out.to_undirected())


ORDERED = {"reverse": True, "order": "degree"}


@pytest.mark.parametrize(
    ("size", "kind", "how"),
    [
        (HERE, "int64", {}),
        (HERE, "string", {"directed": False}),
        (3, "int64", ORDERED),
        pytest.param(3, "int64", {}, marks=pytest.mark.slow),
        pytest.param(3, "string", {"directed": False}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_stream_against_the_model(client3, size, kind, how):
    rng, model = fresh_rng(), Model(how.get("directed", True))
    with DynamicGraph(**on(client3, size), keys=kind, weighted=True, **how) as graph:
        check(graph, model, rng)
        for epoch, bound in enumerate((4, 40, 400, 60), 1):
            src, dst = (keys_of(kind, ends) for ends in rng.integers(0, bound, (2, 120)))
            op = np.where(rng.random(120) < 0.4, -1, 1)
            weight = rng.integers(1, 100, 120).astype(float)
            report = graph.update(EdgeBatch(src, dst, weight, op, keys=kind))
            assert (report.inserted, report.updated, report.deleted, report.missing) == model.update(
                src, dst, weight.tolist(), op.tolist()
            )
            assert report.epoch == 2 * epoch - 1
            check(graph, model, rng)
            gone = [list(model.vertices)[i] for i in rng.integers(0, len(model.vertices), len(model.vertices) // 8 + 1)]
            assert graph.delete_vertices(gone).deleted == model.remove(set(gone))
            assert graph.epoch == 2 * epoch
            check(graph, model, rng)
            if epoch == 2:
                graph.rebalance()
            if epoch == 3:
                graph.reorder()
        everything = list(model.vertices)
        assert graph.delete_vertices(everything).deleted == model.remove(everything)
        assert (graph.num_vertices, graph.num_edges, graph.keys) == (0, 0, kind)
        graph.insert(gone[:1], gone[:1])
        assert graph.vertices().tolist() == gone[:1]
    assert_clean(client3)


@pytest.mark.parametrize("kind", KINDS)
def test_results_speak_in_keys(place, kind):
    a, b, c, d = keys_of(kind, np.arange(4))
    with DynamicGraph(place, keys=kind, reverse=True) as graph:
        graph.insert([a, b, d], [b, c, d])
        found = graph.bfs(a, predecessors=True)
        assert found.to_numpy().tolist() == [0, 1, -1, 2]  # of a, b, d, c
        assert found.ids().tolist() == graph.vertices().tolist() == [a, b, d, c]
        assert found.to_series().to_dict() == {a: 0, b: 1, c: 2, d: -1}
        assert (found[c], found[[c, a]].tolist(), found[1:3].tolist()) == (2, [2, 0], [1, -1])
        before = found.predecessors
        assert before.to_numpy().tolist() == [-1, 0, -1, 1]
        assert before.to_arrow().to_pylist() == pa.array(before).to_pylist() == [None, a, None, b]
        series = before.to_series()
        assert series.isna().tolist() == [True, False, True, False]
        assert series.dropna().to_dict() == {b: a, c: b}
        assert found.to_pandas().loc[b, "predecessors"] == a
        assert graph.connected_components().to_series().to_dict() == {a: a, b: a, c: a, d: d}
        assert graph.connected_components().to_numpy().tolist() == [0, 0, 2, 0]
        assert graph.degree_centrality().top(1)[0][0] in (a, b, d)
        assert graph.shortest_path(a, c) == [a, b, c]
        rows = graph.k_hop([c, a], 1)
        assert [rows.dst[x:y].tolist() for x, y in pairwise(rows.offsets)] == [[c], [a, b]]
        assert graph.distances([a, c]).to_pandas().loc[b].tolist() == [1, -1]
        assert graph.neighbors([c], "in").dst.tolist() == [b]
        mine = graph.pagerank(personalization={d: 1.0}).to_series()
        assert mine[d] == pytest.approx(1.0)
        assert graph.betweenness_centrality(k=[a]).sources == 1
        assert graph.modularity([0, 0, 2, 0]) == pytest.approx(nx.community.modularity(
            nx.DiGraph([(a, b), (b, c), (d, d)]), [{a, b, c}, {d}]
        ))  # fmt: skip
        # a result goes on to speak of the vertices that there were
        graph.delete_vertices([b])
        graph.insert([a], [c])
        assert graph.vertices().tolist() == [a, d, c]
        assert found.to_series().to_dict() == {a: 0, b: 1, c: 2, d: -1}
        assert (found[b], before.to_arrow().to_pylist()) == (1, [None, a, None, b])
        ranks = graph.pagerank(start=mine, tol=1e-10).to_series()
        assert ranks.to_dict() == pytest.approx(graph.pagerank(tol=1e-10).to_series().to_dict(), abs=1e-5)
        assert graph.to_csr().dst.tolist() == [2, 1]
        assert f"keys: {kind}" in repr(graph)


def test_errors_name_keys(place):
    with DynamicGraph(place, keys="string", weighted=True) as graph:
        graph.insert(["ada", "bob"], ["bob", "cy"], [1.0, -2.0])
        for call in (
            lambda: graph.has_edges(["ada", "zoe"], ["ada", "ada"]),
            lambda: graph.degrees(["ada", "zoe"]),
            lambda: graph.neighbors(["ada", "zoe"]),
            lambda: graph.delete_vertices(["ada", "zoe"]),
            lambda: graph.distances(["ada", "zoe"]),
        ):
            with pytest.raises(UnknownVertex, match=r"\[1\] is 'zoe', which is no vertex of the graph"):
                call()
        with pytest.raises(UnknownVertex, match="source is 'zoe', which is no vertex"):
            graph.bfs("zoe")
        with pytest.raises(InvalidOption, match="source is 3; the graph's keys are strings"):
            graph.bfs(3)
        with pytest.raises(NoPath, match="from 'cy' to 'ada'"):
            graph.shortest_path("cy", "ada")
        with pytest.raises(InvalidOption, match="the edge from 'bob' to 'cy' has weight -2"):
            graph.sssp("ada")
        with pytest.raises(InvalidBatch, match=r"dst\[1\] is missing"):
            graph.insert(["x", "y"], ["z", None], [1.0, 2.0])
        with pytest.raises(InvalidBatch, match="the batch has int64 keys and the graph has keys of the kind 'string'"):
            graph.update(EdgeBatch([1], [2], keys="int64"))
        with pytest.raises(InvalidBatch, match="the batch has vertex ids and the graph has keys"):
            graph.update(EdgeBatch([1], [2]))
        assert (graph.num_vertices, graph.epoch) == (3, 1)
    with DynamicGraph(place, 3) as graph:
        assert graph.keys is None
        with pytest.raises(InvalidBatch, match="the batch has string keys and the graph has none"):
            graph.update(EdgeBatch(["a"], ["b"], keys="string"))
        with pytest.raises(InvalidBatch, match='keys="string"'):
            graph.insert(["a"], ["b"])
    with pytest.raises(InvalidOption, match="leave out n_vertices"):
        DynamicGraph(place, 3, keys="int64")
    with pytest.raises(InvalidOption, match="keys 'text' is none of"):
        DynamicGraph(place, keys="text")
    assert_clean(place)


def test_what_the_first_edges_choose():
    with DynamicGraph() as graph:
        assert graph.keys == "undecided"
        assert graph.insert([], []).epoch == 1
        assert graph.delete(["ada"], ["bob"]).missing == 1
        assert graph.keys == "undecided"
        graph.update(EdgeBatch([4_000_000_000], [7]))
        assert (graph.keys, graph.vertices().tolist()) == ("int64", [4_000_000_000, 7])
        with pytest.raises(InvalidBatch, match="keys are int64"):
            graph.insert(["a"], ["b"])
        graph.delete_vertices([7, 4_000_000_000])
        assert (graph.keys, graph.num_vertices) == ("int64", 0)
    with DynamicGraph() as graph:
        graph.insert([0, 1], [1, 1000])
        assert (graph.keys, graph.num_vertices) == (None, 1001)
    with DynamicGraph() as graph:
        graph.insert(pd.Series(["a"], dtype="category"), pa.array(["b"]).dictionary_encode())
        assert (graph.keys, graph.vertices().tolist()) == ("string", ["a", "b"])
    with DynamicGraph() as graph:
        assert (graph.add_vertices(3), graph.keys) == (range(3), None)
    with DynamicGraph(keys=None) as graph, pytest.raises(InvalidBatch, match=r"src\[0\] is -1; vertex ids run from 0"):
        graph.insert([-1], [0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_is_refused_leaves_no_key(client, kind):
    a, b, c, d = keys_of(kind, np.arange(1, 5))
    with DynamicGraph(client) as graph:  # of which the first batch would decide what keys are
        for step in ("sort", "route", "prepare"):
            for names in ([a], [a, b]):
                client.run(before, step, refuse, workers=[graph.workers[1]])
                with pytest.raises(CapacityError, match="no room"):
                    graph.insert([*names, c], [*names, d])
                assert graph.num_vertices == len(graph.vertices())
                assert not {*graph.vertices().tolist()} & {c, d}
                graph.insert(names, names)
                assert {*graph.vertices().tolist()} == {a, *(names if step == "sort" else (a, b))}
        client.run(before, "remove", refuse, workers=[graph.workers[0]])
        with pytest.raises(CapacityError, match="no room"):
            graph.delete_vertices([a])
        graph.insert([c], [d])
        assert graph.vertices().tolist() == [a, b, c, d]
    assert_clean(client)


def test_ctrl_c_before_the_vote_leaves_no_key_and_after_it_all(client, tmp_path):
    with DynamicGraph(client) as graph:
        graph.insert(["a"], ["b"])
        for step, then in (("prepare", ["a", "b"]), ("commit", ["a", "b", "c"])):
            client.run(before, step, rest, 1.0, tmp_path / step, workers=[graph.workers[1]])
            with when((tmp_path / step).exists, ctrl_c), pytest.raises(KeyboardInterrupt):
                graph.insert(["c"], ["a"])
            assert graph.has_edges(["a"], ["b"]).all()
            assert graph.vertices().tolist() == then
        graph.insert(["d"], ["c"])
        assert graph.vertices().tolist() == ["a", "b", "c", "d"]
        assert graph.neighbors(["c", "d"]).dst.tolist() == ["a", "c"]


def test_pipelines_and_added_vertices(place):
    with DynamicGraph(place) as graph:
        with graph.pipeline() as pipe:
            done = [pipe.update(EdgeBatch([f"{i // 3}"], [f"{i // 2}"], keys="string")) for i in range(12)]
            gone = pipe.update(EdgeBatch(["5"], ["never"], op=-1, keys="string"))
        assert sum(report.result().inserted for report in done) == graph.num_edges
        assert (gone.result().missing, gone.result().epoch) == (1, 13)
        assert sorted(graph.vertices().tolist()) == [str(i) for i in range(6)]
        assert graph.add_vertices(["5", "x", "x", "y"]) == range(6, 8)
        assert graph.vertices().tolist()[6:] == ["x", "y"]
        assert graph.degrees(["x"]).tolist() == [0]


def stored(graph: DynamicGraph) -> tuple:
    """What a graph has, by keys."""
    return graph.keys, graph.vertices().tolist(), found_edges(graph)


def found_edges(graph: DynamicGraph) -> set:
    frame = graph.to_pandas()
    return set(zip(frame["source"].tolist(), frame["target"].tolist(), strict=True))


@pytest.mark.parametrize("kind", ["string", pytest.param("int64", marks=pytest.mark.slow)])
def test_a_store_on_other_numbers_of_workers(client3, tmp_path, kind):
    rng, then, workers = fresh_rng(), [], None
    graph = DynamicGraph(client3, store=tmp_path / "s", retain=0, snapshot_bytes=0)
    for size in (HERE, 3, 2):
        with graph:
            workers = workers or list(graph.workers)
            for step in range(5):
                src, dst = (keys_of(kind, ends) for ends in rng.integers(1, 60, (2, 25)))
                graph.insert(src, dst)
                then.append(stored(graph))
                some = graph.vertices().tolist()
                if step == 1:
                    with pytest.raises(InvalidBatch):
                        graph.insert(src, [None] * len(dst))
                    graph.delete(src[:9], dst[:9])
                elif step == 2:
                    graph.delete_vertices(some[2 : 2 + len(some) // 2])
                elif step == 3:
                    graph.add_vertices([*some, *keys_of(kind, rng.integers(60, 80, 3))])
                else:
                    graph.insert(some[:1], some[-1:])
                then.append(stored(graph))
                if step == 3 and size in (HERE, 2):
                    graph.snapshot()
            assert len(then) == graph.epoch
            for epoch in rng.integers(1, graph.epoch + 1, 2).tolist():
                with graph.at(epoch) as earlier:
                    assert stored(earlier) == then[epoch - 1], epoch
            graph.save(tmp_path / f"saved {size}")
        with DynamicGraph.load(None, tmp_path / f"saved {size}") as saved:
            assert stored(saved) == then[-1]
        where = {"client": None} if size == HERE else {"client": client3, "workers": workers[:size]}
        graph = DynamicGraph.open(**where, store=tmp_path / "s", retain=0)
        assert stored(graph) == then[-1]
        assert graph.epoch == len(then)
    graph.delete_vertices(graph.vertices())
    graph.close()
    with DynamicGraph.open(None, tmp_path / "s") as graph:
        assert stored(graph) == (kind, [], set())
        graph.insert(keys_of(kind, [7]), keys_of(kind, [7]))
        assert graph.vertices().tolist() == keys_of(kind, [7])
    assert_clean(client3)


def test_ingest_reads_here(place, tmp_path):
    frame = pd.DataFrame({"from": ["a", "b", "c"], "to": pd.Categorical(["b", "c", "a"]), "w": [1.0, 2.0, 3.0]})
    frame.to_parquet(tmp_path / "some.parquet")
    np.savez(tmp_path / "some.npz", src=np.array(["c"]), dst=np.array(["d"]), weight=[4.0])
    columns = {"src": "from", "dst": "to", "weight": "w"}
    with DynamicGraph(place, weighted=True) as graph:
        assert [report.inserted for report in graph.ingest(frame, columns=columns)] == [3]
        assert graph.keys == "string"
        assert [report.updated for report in graph.ingest(tmp_path / "some.parquet", columns=columns)] == [3]
        assert graph.ingest([tmp_path / "some.npz"])[0].inserted == 1
        reports = graph.ingest(lambda rank, size, step: ([f"{rank}{size}{step}"], ["a"]) if step < 3 else None)
        assert [(report.inserted, report.epoch) for report in reports] == [(1, 4), (1, 5), (1, 6)]
        batch = EdgeBatch(["a", "x"], ["b", "y"], [9.0, 9.0], [-1, -1], keys="string")
        assert [(report.deleted, report.missing) for report in graph.ingest([batch, batch])] == [(1, 1), (0, 2)]
        assert graph.vertices().tolist() == ["a", "b", "c", "d", "010", "011", "012"]
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
    columns = {"src": "from", "dst": "to", "weight": "weight"}
    with DynamicGraph(client, weighted=True) as graph:
        parts = [dask_delayed(frame)[cut] for cut in cuts]
        reports = graph.ingest([*parts[:2], client.scatter(frame[cuts[2]])], columns=columns)
        assert [(report.inserted, report.updated, report.deleted, report.missing) for report in reports] == counts
        check(graph, model, rng)
        collection = dask.dataframe.from_pandas(frame, npartitions=3)
        assert [report.inserted for report in graph.ingest(collection, columns=columns)] == [0, 0, 0]
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


@pytest.mark.parametrize("kind", ["string", pytest.param("int64", marks=pytest.mark.slow)])
def test_the_fingerprint_is_of_keys_and_not_of_their_order(client3, kind):
    rng = fresh_rng()
    src, dst = (keys_of(kind, ends) for ends in rng.integers(0, 50, (2, 200)))
    found = []
    for turn, size in enumerate((HERE, 3)):
        order = rng.permutation(len(src))
        with DynamicGraph(**on(client3, size), keys=kind) as graph:
            graph.insert([src[i] for i in order], [dst[i] for i in order])
            if turn:
                graph.reorder()
            found.append(graph.fingerprint())
            graph.delete(src[:1], dst[:1])
            assert graph.fingerprint() != found[-1]
    assert len(set(found)) == 1


def test_removal_in_every_structure():
    for structure in names():
        with DynamicGraph(structure=structure, weighted=True, reverse=True, keys="int64") as graph:
            graph.insert([-1, 5, 5, 9], [5, 9, -1, 9], [1.0, 2.0, 3.0, 4.0])
            shard = graph._directory.coordinator._session._calls.shard
            assert graph.delete_vertices([5, 5]).deleted == 3
            graph.insert([5, 7], [7, -1], [5.0, 6.0])
            for held in shard.structures:
                held.check_invariants()
                assert (held.n_vertices, held.n_rows) == (4, 4)
            frame = graph.to_pandas().sort_values("source")
            assert frame.to_numpy().tolist() == [[5, 7, 5.0], [7, -1, 6.0], [9, 9, 4.0]]
            assert graph.degrees([-1, 5, 7, 9], "in").tolist() == [1, 0, 1, 1]


def test_threads_insert_delete_and_read(place):
    def work(mine: int) -> None:
        for turn in range(8):
            own = [f"{mine} {turn} {i}" for i in range(4)]
            graph.insert(own[:3], own[1:])
            assert graph.has_edges(own[:3], own[1:]).all()
            assert graph.neighbors(own[:2]).dst.tolist() == own[1:3]
            assert graph.bfs(own[0])[own[3]] == 3
            graph.delete_vertices(own[1:3])
            assert graph.degrees([own[0], own[3]]).tolist() == [0, 0]

    with DynamicGraph(place) as graph, ThreadPoolExecutor(3) as pool:
        graph.insert(["hub"], ["hub"])
        list(pool.map(work, range(3)))
        assert (graph.epoch, graph.num_edges, graph.num_vertices) == (49, 1, 1 + 3 * 8 * 2)
        assert graph.bfs("hub").to_series()["hub"] == 0


# ---- where keys meet the other calls ---------------------------------------------------------------------------------


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
        nearest = named.multi_source_bfs(keys[ids]).nearest.to_arrow().to_pylist()
        assert nearest == [None if i < 0 else keys[i] for i in plain.multi_source_bfs(ids).nearest]
        if not directed:
            found, wanted = named.k_truss(3), plain.k_truss(3)
            assert found.src.to_arrow().to_pylist() == keys[wanted.src].tolist()
            assert named.update(found).updated == len(wanted)
        with pytest.raises(UnknownVertex, match=r"starts\[1\] is 'none'"):
            named.random_walks([keys[0], "none"], 3)
        with pytest.raises(InvalidOption, match=rf"seeds\[1\] is '{keys[3]}', which comes before"):
            named.sample_neighbors([keys[3], keys[3]], [1], direction="out")
        with pytest.raises(UnknownVertex, match=r"pairs\[1\] is 'none'"):
            named.jaccard([(keys[0], "none")])


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


def test_arithmetic_aligns_by_key(place):
    with DynamicGraph(place, keys="string") as graph:
        graph.insert(["a", "b", "c"], ["b", "c", "d"])
        rank = graph.pagerank()
        series = rank.to_series()
        np.testing.assert_allclose((rank + series[::-1]).to_numpy(), 2 * rank.to_numpy())
        with pytest.raises(InvalidOption, match="the index of an operand has 3 rows"):
            rank + series[:3]
        with pytest.raises(UnknownVertex, match="'z'"):
            rank + series.rename({"a": "z"})
        graph.delete_vertices(["a"])
        with pytest.raises(
            InvalidOption, match=r"an operand is a result of epoch 1, when the graph had other vertices"
        ):
            graph.pagerank() * rank
        gathered = graph.gather(pd.Series({"d": 3.0, "c": 2.0, "b": 1.0}), "sum", direction="out")
        assert gathered.to_series().to_dict() == {"b": 2.0, "c": 3.0, "d": 0.0}


class Numbers:
    """Places 0 to n - 1 of a source, a batch of keys each."""

    def __init__(self, n):
        self.n = n

    def batches(self, after):
        for i in range(after.get("numbers", -1) + 1, self.n):
            yield ("numbers", i), {"src": [f"v{i}"], "dst": [f"v{i + 1}"]}


def test_a_source_of_keys_is_followed_once_in_a_graph_that_moves(client, tmp_path):
    with DynamicGraph(store=tmp_path / "store", snapshots=f"file://{tmp_path / 'archive'}") as graph:
        assert (graph.follow(Numbers(3)), graph.keys) == (3, "string")
        graph.delete_vertices(["v1"])
        graph.snapshot()
        assert list((tmp_path / "archive").rglob("keys.arrow"))
        graph.move_to(client)
        assert (graph.follow(Numbers(5)), graph.vertices().tolist()) == (2, ["v0", "v2", "v3", "v4", "v5"])
        assert graph.has_edges(["v2", "v4"], ["v3", "v5"]).tolist() == [True, True]


@pytest.mark.parametrize(("kind", "directed"), [("string", False), pytest.param("int64", True, marks=pytest.mark.slow)])
def test_changes_are_of_keys(client, tmp_path, kind, directed):
    rng, models = fresh_rng(), [Model(directed)]
    with DynamicGraph(store=tmp_path / "s", keys=kind, weighted=True, directed=directed, retain=0) as graph:
        for _ in range(4):
            src, dst = (keys_of(kind, ends) for ends in rng.integers(0, 30, (2, 60)))
            op, weight = np.where(rng.random(60) < 0.4, -1, 1), rng.integers(1, 4, 60).astype(float)
            graph.update(EdgeBatch(src, dst, weight, op, keys=kind))
            models.append(copy.deepcopy(models[-1]))
            models[-1].update(src, dst, weight.tolist(), op.tolist())
            gone = list(models[-1].vertices)[::4]
            graph.delete_vertices(gone)
            models.append(copy.deepcopy(models[-1]))
            models[-1].remove(gone)
        if kind == "string":
            graph.move_to(client)
        for first, last in [(0, 8), (5, None), (7, 2), (8, 0), (3, 3)]:
            frame = graph.changes(first, last)
            old, new = models[first].edges, models[8 if last is None else last].edges
            found = {
                models[0].key(row.src, row.dst): (row.change, *(None if w != w else w for w in (row.before, row.after)))
                for row in frame.itertuples()
            }
            assert len(found) == len(frame)
            assert found == {
                edge: (
                    "deleted" if edge not in new else "updated" if edge in old else "inserted",
                    old.get(edge),
                    new.get(edge),
                )
                for edge in {*old, *new}
                if old.get(edge) != new.get(edge)
            }
            place = {key: i for i, key in enumerate(models[8 if last is None else last].vertices)}
            at = [place.get(key, len(place)) for key in frame["src"]]
            assert at == sorted(at)


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_without_a_store_moves_with_its_keys(client, kind):
    rng, directed = fresh_rng(), kind == "string"
    with DynamicGraph(keys=kind, weighted=True, directed=directed) as graph:
        graph.move_to(client)
        assert (graph.keys, graph.num_vertices, graph.epoch) == (kind, 0, 0)
        src, dst = (keys_of(kind, ends) for ends in rng.integers(0, 30, (2, 80)))
        model = Model(directed)
        model.update(src, dst, [2.5] * 80, [1] * 80)
        graph.insert(src, dst, [2.5] * 80)
        graph.delete_vertices(src[:1])
        model.remove(src[:1])
        for to in (None, client):
            graph.move_to(to)
            assert graph.epoch == 2
            check(graph, model, rng)
    with DynamicGraph() as graph:
        graph.insert(["a"], ["b"])
        graph.move_to(None)
        assert (graph.keys, graph.vertices().tolist()) == ("string", ["a", "b"])


def test_a_stream_of_ids_decides_for_ids():
    with DynamicGraph() as graph:
        assert graph.execute(Operations(["insert", "has_edge"], [5000, 0], [1, 1])).has_edge.tolist() == [False]
        assert (graph.keys, graph.num_vertices) == (None, 5001)
        graph.move_to(None)
        assert (graph.keys, graph.num_vertices, graph.epoch) == (None, 5001, 1)
