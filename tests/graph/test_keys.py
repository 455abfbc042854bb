"""Batches and results of graphs with users' own keys, here and on a cluster, against a dict of edges and NetworkX."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from faults import before, refuse, rest
from graph_clusters import HERE, assert_clean, on
from interrupts import ctrl_c, when
from keyed_model import Model, check, keys_of
from plain_graph import fresh_rng

from mgraph import CapacityError, DynamicGraph, EdgeBatch, InvalidBatch, InvalidOption, NoPath, UnknownVertex
from mgraph.structures import names

KINDS = ["int64", "string"]
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
        absent = keys_of(kind, np.arange(5))[4]
        assert [vertex in found for vertex in (a, d, absent, None)] == [True, True, False, False]
        before = found.predecessors
        assert before.to_numpy().tolist() == [-1, 0, -1, 1]
        assert before.to_arrow().to_pylist() == pa.array(before).to_pylist() == [None, a, None, b]
        series = before.to_series()
        assert series.isna().tolist() == [True, False, True, False]
        assert series.dropna().to_dict() == {b: a, c: b}
        assert found.to_pandas().loc[b, "predecessors"] == a
        least = min(a, b, c)
        assert graph.connected_components().to_series().to_dict() == {a: least, b: least, c: least, d: d}
        place_of = graph.vertices().tolist().index(least)
        assert graph.connected_components().to_numpy().tolist() == [place_of, place_of, 2, place_of]
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
        with pytest.raises(
            InvalidBatch,
            match="int64 keys and the graph has keys of the kind 'string'; make the batch with keys=",
        ):
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
    with pytest.raises(InvalidOption, match="gets its vertices from its edges: leave out n_vertices"):
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
        with pytest.raises(InvalidOption, match="n is 3; the graph has keys: give a list of the keys to add"):
            graph.add_vertices(3)


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
            shard = graph._directory.coordinator._session.calls.shard
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
        for turn in range(3):
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
        assert (graph.epoch, graph.num_edges, graph.num_vertices) == (19, 1, 1 + 3 * 3 * 2)
        assert graph.bfs("hub").to_series()["hub"] == 0
