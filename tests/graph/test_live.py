"""Results that follow the graph: equal to fresh runs after whatever happens to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pytest
from graph_clusters import assert_clean
from graph_model import GraphModel, random_batch
from live_results import IDS, assert_same, line, random_change
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch, Operations
from mgraph.algorithms.algorithm import HUB_DEGREE
from mgraph.algorithms.communities.components import maintain as components
from mgraph.algorithms.paths.bfs import maintain as maintained_bfs
from mgraph.algorithms.paths.incremental_paths import incremental_paths, subtree_cut
from mgraph.algorithms.paths.incremental_paths.incremental_paths import IncrementalPaths
from mgraph.algorithms.paths.near_far import search
from mgraph.errors import GraphClosed, InvalidOption, NoPath, UnknownVertex
from mgraph.sources.rmat import Rmat
from mgraph.structures import names
from mgraph.worker.results import maintained as worker_live
from mgraph.worker.shard import cost

KINDS = {
    "undirected": {"directed": False},
    "undirected, weighted": {"directed": False, "weighted": True},
    "directed": {"weighted": True},
    "with in-edges": {"reverse": True, "weighted": True},
}


def followed(directed: bool, reverse: bool) -> list[tuple[str, dict[str, Any]]]:
    """What is maintained on a graph of a kind."""
    found: list[tuple[str, dict[str, Any]]] = [
        ("connected_components", {}),
        ("bfs", {"source": 3}),
        ("bfs", {"source": 5, "predecessors": True}),
        ("pagerank", {}),
        ("pagerank", {"alpha": 0.5, "personalization": {0: 1}, "tol": 1e-9, "dtype": "float64"}),
        ("sssp", {"source": 0}),
        ("sssp", {"source": 1, "dtype": "float64", "predecessors": True}),
    ]
    found += [("bfs", {"source": 2, "direction": "in"})] if reverse or not directed else []
    return found if directed else [*found, ("triangles", {})]


def fuzz(place: Any, kind: dict[str, Any], rounds: int, n: int, **options: Any) -> Counter[str]:
    """Random changes of a graph, and reads at random of all that follows it; how often each way was taken."""
    rng, hows = fresh_rng(), Counter[str]()
    with DynamicGraph(place, n, **{"device": "cpu", **kind, **options}) as graph:
        model = GraphModel(n, kind.get("directed", True), kind.get("weighted", False))
        start = random_batch(rng, n, 2 * n, model.weighted, deletes=0)
        graph.update(start)
        model.update(start)
        what = followed(model.directed, kind.get("reverse", False))
        what = [
            (name, {**given, "source": given["source"] % n} if "source" in given else given) for name, given in what
        ]
        lives = [(graph.maintain(name, **given), given) for name, given in what]
        for _ in range(rounds):
            random_change(graph, rng, model)
            for live, given in lives:
                if rng.random() < 0.4:
                    assert_same(live, graph, given)
                    hows[live.report.how] += 1
    print(hows)
    return hows


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_they_equal_fresh_runs(kind):
    assert fuzz(None, kind, 10, n=100)["incremental"]


@pytest.mark.parametrize("kind", ["undirected, weighted", "with in-edges"])
def test_they_equal_fresh_runs_where_some_changes_are_looked_at_first(kind, monkeypatch):
    """The vertices that this cuts remain cut, and what they supported is looked at, too.

    Those that a BFS looks at before it prepares an update are not.
    """
    for module, limits in (
        (incremental_paths, ("SAMPLE", "SPARSEST")),
        (maintained_bfs, ("SAMPLE", "EVERY", "FEWEST")),
    ):
        for name in limits:
            monkeypatch.setattr(module, name, 2)
    assert fuzz(None, KINDS[kind], 30, n=100)["incremental"]


@pytest.mark.parametrize("kind", ["undirected, weighted", pytest.param("with in-edges", marks=pytest.mark.slow)])
def test_on_two_workers(client, kind):
    assert fuzz(client, KINDS[kind], 8, n=100)["incremental"]
    assert_clean(client)


def test_triangles_of_edges_that_come_or_go_beside_edges_with_new_weights():
    with DynamicGraph(None, 200, directed=False, weighted=True) as graph:
        ids = np.arange(199)
        graph.insert(ids, ids + 1, np.ones(199))
        live = graph.maintain("triangles")
        for op, want in ((1, [1, 1, 1]), (-1, [0, 0, 0])):
            graph.update(EdgeBatch([0, 0, 1], [2, 1, 2], [1, 5 + op, 5 + op], [op, 1, 1]))
            assert live.result().to_numpy()[:3].tolist() == want
            assert live.report.how == "incremental"


@pytest.mark.parametrize("n", [1, 12])
def test_small_graphs(n):
    for kind in KINDS.values():
        fuzz(None, kind, 8, n)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("structure", names())
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_long_streams(client3, structure, kind):
    for place in (None, client3) if structure == "gpma+" else (None,):
        fuzz(place, kind, 80, n=300, structure=structure)
        fuzz(place, kind, 80, n=40, structure=structure)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_on_a_gpu(kind):
    fuzz(None, kind, 60, n=400, device="cuda")


WAYS = ["cpu", "cpu, by blocks", "cpu, by jumps"]


@pytest.fixture(params=[*WAYS, *(pytest.param(way, marks=pytest.mark.gpu) for way in ("cuda", "cuda, by jumps"))])
def by_blocks(request, monkeypatch):
    """A device; on a GPU and where it says so, blocks go on by themselves from where paths have changed.

    By jumps, pointers find all that is cut off.
    """
    monkeypatch.setattr(cost, "FEW", 10**9)  # nothing is given up, or left out
    monkeypatch.setattr(cost, "SHORT", 1e9)
    monkeypatch.setattr(components, "PATCH", 0)
    monkeypatch.setattr(IncrementalPaths, "_recompute", _recompute_once)
    device, _, way = request.param.partition(", ")
    if way:
        monkeypatch.setitem(search.BLOCKWISE, "cpu", 4096)
    if way == "by jumps":
        monkeypatch.setattr(incremental_paths, "FEW", 0)
        monkeypatch.setattr(subtree_cut, "JUMPS", 1)
    return device


_recompute = IncrementalPaths._recompute


def _recompute_once(self, *args):
    """`IncrementalPaths._recompute`, where no vertex was cut twice."""
    cut = self.device.to_host(self.cut_off)
    assert len(np.unique(cut)) == len(cut)
    return _recompute(self, *args)


@pytest.mark.parametrize(("few", "launches"), [(100, 16), (1 << 15, 16), (1 << 15, 1)])
def test_paths_through_a_hub(by_blocks, few, launches, monkeypatch):
    """More is cut off at once than a block's lists hold, and a row is read by the lanes of many tiles.

    With more than a few suspects, those that blocks leave are looked at in rounds. After a launch of a turn, a search
    in the order of lengths goes on with what blocks have left.
    """
    monkeypatch.setattr(search, "BLOCKWISE_LAUNCHES", launches)
    if launches == 1:
        monkeypatch.setattr(search, "BLOCKWISE_TURNS", 1)
        monkeypatch.setattr(search, "BLOCKWISE_STEPS", 1)
    monkeypatch.setattr(incremental_paths, "MANY", few)
    rng, n = fresh_rng(), 3 * HUB_DEGREE
    hub, ends = np.full(n - 2, 1, IDS), np.arange(2, n, dtype=IDS)
    src, dst = np.concatenate([[0, 0], hub, ends[:-1]]), np.concatenate([[1, 2], ends, ends[1:]])
    weights = np.concatenate([[1, 1], rng.integers(1, 9, n - 2), rng.integers(1, 9, n - 3)]).astype(np.float32)
    with DynamicGraph(n_vertices=n, directed=False, weighted=True, device=by_blocks) as graph:
        graph.insert(src.astype(IDS), dst.astype(IDS), weights)
        live = graph.maintain("sssp", source=0)
        for weight in (3, 2, 40, 1):
            some = rng.choice(len(src), 30)
            graph.insert(np.append(src[some], 0), np.append(dst[some], 1), np.append(weights[some] + weight, weight))
            assert_same(live, graph, {"source": 0})
            assert live.report.how == "incremental"


def test_long_ways_with_ties(by_blocks):
    """On a torus with three weights, a vertex has several ways of the same length, and what is cut off is long."""
    rng, side = fresh_rng(), 40
    ids = np.arange(side * side, dtype=IDS)
    src = np.tile(ids, 2)
    dst = np.append((ids % side + 1) % side + ids // side * side, (ids + side) % len(ids)).astype(IDS)
    with DynamicGraph(n_vertices=len(ids), directed=False, weighted=True, device=by_blocks) as graph:
        graph.insert(src, dst, rng.integers(1, 4, len(src)).astype(np.float32))
        given = {"sssp": {"source": 7}, "bfs": {"source": 3}, "connected_components": {}, "pagerank": {}}
        lives = [graph.maintain(name, **arguments) for name, arguments in given.items()]
        for k in (1, 5, 60, 200, 5, 60):
            at = rng.choice(len(src), k, replace=False)
            weights = rng.integers(1, 4, k).astype(np.float32)
            graph.update(EdgeBatch(src[at], dst[at], weights, rng.choice([1, 1, -1], k).astype(np.int8)))
            for live in lives:
                assert_same(live, graph, given[live.name])
                assert live.report.how != "recomputed" or live.name in ("connected_components", "pagerank")


@pytest.mark.parametrize("kind", ["undirected, weighted", "with in-edges"])
def test_paths_equal_fresh_runs(by_blocks, kind):
    assert fuzz(None, KINDS[kind], 16, n=150, device=by_blocks)["incremental"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_that_are_rounded_otherwise(by_blocks, dtype):
    """A path grows by more than its first edge does, where the numbers from there on are twice as far apart."""
    n, start = 5000, float(2**24 - 6000)
    src, dst = line(n)
    weights = np.full(n - 1, 1.25, np.float32)
    weights[0] = start
    with DynamicGraph(n_vertices=n, directed=False, weighted=True, device=by_blocks) as graph:
        graph.insert(src, dst, weights)
        live = graph.maintain("sssp", source=0, dtype=dtype)
        for first in (start + 5900, start, start + 5950):
            before = live.result().to_numpy()
            graph.insert([0], [1], [first])
            assert_same(live, graph, {"source": 0, "dtype": dtype})
            assert live.report.how == "incremental"
            risen = live.result().to_numpy() - before
            assert (abs(risen[-1] - risen[1]) > 1000) == (dtype == "float32")


def test_edges_of_no_length(by_blocks):
    """Vertices hang on others of their own length, and parts are cut off for good."""
    rng, side = fresh_rng(), 30
    ids = np.arange(side * side, dtype=IDS)
    src, dst = np.tile(ids, 2), np.append((ids + 1) % len(ids), (ids + side) % len(ids)).astype(IDS)
    with DynamicGraph(n_vertices=len(ids), directed=False, weighted=True, device=by_blocks) as graph:
        graph.insert(src, dst, rng.integers(0, 3, len(src)).astype(np.float32))
        live = graph.maintain("sssp", source=7)
        for k in (5, 60, 200, 5, 900, 60):
            at = rng.choice(len(src), k, replace=False)
            weights = rng.integers(0, 3, k).astype(np.float32)
            graph.update(EdgeBatch(src[at], dst[at], weights, rng.choice([1, -1], k).astype(np.int8)))
            assert_same(live, graph, {"source": 7})
            assert live.report.how != "recomputed"


def test_ranks_change_around_few_changed_edges_only():
    rng, side = fresh_rng(), 200
    ids = np.arange(side * side, dtype=IDS)
    src = np.tile(ids, 2)
    dst = np.append((ids % side + 1) % side + ids // side * side, (ids + side) % len(ids)).astype(IDS)
    there = rng.random(len(src)) < 0.9  # where all have 4 neighbours, ranks are exact after an iteration
    src, dst = src[there], dst[there]
    with DynamicGraph(n_vertices=len(ids), directed=False, device="cpu") as graph:
        graph.insert(src, dst)
        live = graph.maintain("pagerank", tol=1e-3)
        for _ in range(3):
            at = rng.choice(len(src), 2, replace=False)
            graph.delete(src[at], dst[at])
            assert_same(live, graph, {"tol": 1e-3})
            assert live.report.edges < 2 * graph.num_edges / 10


def test_the_error_of_ranks_is_that_of_the_way_they_were_found():
    with DynamicGraph(n_vertices=60, directed=False, device="cpu") as graph:
        graph.insert(*line(60))
        live = graph.maintain("pagerank")
        assert live.result().error == graph.pagerank().error
        graph.insert([3], [4])
        assert live.result().error == graph.pagerank().error and live.report.how == "unchanged"
        graph.insert([7], [9])
        assert_same(live, graph, {})


# ---- eager, closed, refused ------------------------------------------------------------------------------------------


def test_eager_results_are_ready_after_each_change(place, caplog):
    with DynamicGraph(place, 50, directed=False, device="cpu") as graph:
        live = graph.maintain("connected_components", eager=True)
        lazy = graph.maintain("bfs", source=0)
        changes = (
            lambda: graph.insert([0, 1], [1, 2]),
            lambda: graph.add_vertices(3),
            lambda: graph.delete_vertices([1]),
            lambda: graph.ingest(Rmat(5, 10), steps=2),
        )
        for change in changes:
            change()
            assert live.epoch == graph.epoch > lazy.epoch
        with graph.pipeline() as pipeline:
            pipeline.update(EdgeBatch([7], [8]))
        assert live.epoch == graph.epoch
        live.result()
        assert live.report.how == "unchanged"
        assert_same(live, graph, {})
        assert_same(lazy, graph, {"source": 0})
        live.close()
        graph.insert([9], [10])
    assert not [one for one in caplog.records if one.name.startswith("mgraph")]


@pytest.mark.parametrize("kind", [{}, {"keys": "int64"}])
def test_eager_results_follow_each_batch_of_a_pipeline(place, kind):
    with DynamicGraph(place, None if kind else 50, device="cpu", **kind) as graph:
        graph.insert([0, 7], [7, 8])
        live, epochs = graph.maintain("bfs", source=0, eager=True), []
        with graph.pipeline() as pipeline:
            for i in (8, 0):
                done = pipeline.update(EdgeBatch([i], [i + 1], keys=kind.get("keys")))
                epochs.append((done.result().epoch, live.epoch))
            stream = Operations(["insert", "has_edge"], [9, 9], [0, 0], keys=kind.get("keys"))
            done = pipeline.execute(stream)
            epochs.append((done.result().report.epoch, live.epoch))
            assert done.result().has_edge.tolist() == [True]
            live.close()  # from here on batches are in flight again
            assert pipeline.update(EdgeBatch([7], [9], keys=kind.get("keys"))).result().epoch == 5
        assert epochs == [(2, 2), (3, 3), (4, 4)]
        assert (live.epoch, graph.epoch) == (4, 5)


def test_a_pipeline_with_eager_results_takes_what_others_take():
    with DynamicGraph(device="cpu", keys=None) as graph:
        graph.insert([0], [1])
        live = graph.maintain("connected_components", eager=True)
        for name, what in (("update", EdgeBatch([0], [2])), ("execute", Operations(["insert"], [0], [2]))):
            with pytest.raises(UnknownVertex, match=r"dst\[0\] is 2"), graph.pipeline() as pipeline:
                getattr(pipeline, name)(what)
        assert live.epoch == graph.epoch == 1


@pytest.mark.parametrize("n_vertices", [10, None])
def test_eager_results_follow_each_batch_of_a_stream(place, n_vertices):
    with DynamicGraph(place, n_vertices, device="cpu", keys=None) as graph:
        graph.insert([9], [8])
        live, seen = graph.maintain("bfs", source=0, eager=True), []

        def look(report):
            seen.append((report.epoch, live.epoch, live.result().reached))
            assert live.report.how == "unchanged"

        graph.stream((([i], [i + 1]) for i in range(6)), on_batch=look)
        assert seen == [(i + 2, i + 2, i + 2) for i in range(6)]
        near, other = graph.maintain("bfs", source=9, eager=True), []
        graph.stream([([8], [7])], on_batch=lambda report: other.append(near.epoch))
        assert other == [live.epoch] == [graph.epoch]


@pytest.mark.parametrize("name", ["bfs", "connected_components", "pagerank", "sssp", "triangles"])
def test_a_result_that_the_user_has_closed_is_replaced(name):
    given = {"source": 0} if name in ("bfs", "sssp") else {}
    with DynamicGraph(n_vertices=20, directed=False, weighted=True, device="cpu") as graph:
        graph.insert([0, 1], [1, 2])
        live = graph.maintain(name, **given)
        first = live.result()
        want = first.to_numpy()
        assert live.result() is first
        first.close()
        second = live.result()
        assert live.report.how == "unchanged"
        np.testing.assert_array_equal(second.to_numpy(), want)
        assert live.result() is second
        graph.insert([2], [3])
        live.result().close()
        assert_same(live, graph, given)


def test_a_closed_live_holds_nothing_but_what_the_user_took():
    with DynamicGraph(n_vertices=1000, directed=False, device="cpu") as graph:
        graph.insert(*line(1000))
        before = graph.nbytes
        live = graph.maintain("triangles")
        live.close()
        graph.has_edges([0], [1])
        assert graph.nbytes == before
        other = graph.maintain("triangles")
        taken = other.result()
        other.close()
        assert taken.to_numpy().tolist() == [0] * 1000
        assert (live.epoch, other.epoch) == (1, 1)
        assert before < graph.nbytes < before + 10_000
        del taken
        graph.has_edges([0], [1])
        assert graph.nbytes == before


def test_a_moved_graph_has_no_maintained_results():
    with DynamicGraph(n_vertices=5, device="cpu") as graph:
        live, name = graph.maintain("bfs", source=0, eager=True), graph.id
        graph.move_to(None)
        with pytest.raises(GraphClosed, match=f"of bfs is of graph {name}, which was moved: maintain it again"):
            live.result()
        graph.insert([0], [1])
        assert graph.maintain("bfs", source=0).result()[1] == 1


@pytest.mark.parametrize("tol", [2.0, 1e6, 1e300])
def test_ranks_of_a_tolerance_that_all_ranks_meet(tol):
    with DynamicGraph(n_vertices=25, directed=False, device="cpu") as graph:
        live = graph.maintain("pagerank", tol=tol)
        for end in range(1, 5):
            graph.insert([0], [end])
            result = live.result()
            assert result.converged
            assert result.sum() == pytest.approx(1)


# ---- where PageRank begins -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["start", "nstart", "array", "named"])
def test_ranks_that_do_not_converge_begin_where_those_of_the_method_do(start):
    rng = fresh_rng()
    with DynamicGraph(n_vertices=60, directed=False, device="cpu") as graph:
        graph.insert(*rng.integers(0, 60, (2, 150)))
        given = {"start": {"array": rng.random(60), "named": {3: 1.0}}.get(start, graph.pagerank(alpha=0.5))}
        given = {("nstart" if start == "nstart" else "start"): given["start"], "max_iter": 2}
        live = graph.maintain("pagerank", **given)
        for change in (lambda: None, graph.reorder, graph.rebalance, lambda: graph.add_vertices(2)):
            change()
            graph.insert(*rng.integers(0, 60, (2, 5)))
            got, want = live.result(), graph.pagerank(**given)
            assert not got.converged
            assert got.iterations == want.iterations == 2
            np.testing.assert_array_equal(got.to_numpy(), want.to_numpy())
        if start in ("start", "nstart"):
            given[start].close()
            graph.insert([0], [59])
            for read in (live.result, lambda: graph.pagerank(**given)):
                with pytest.raises(GraphClosed, match="this result of pagerank .* was closed"):
                    read()


def test_ranks_that_converge_no_longer_begin_with_the_start_again():
    rng = fresh_rng()
    with DynamicGraph(n_vertices=200, directed=False, device="cpu") as graph:
        graph.insert(*rng.integers(0, 200, (2, 600)))
        given = {"start": graph.pagerank(tol=1e-9), "max_iter": 3}
        live = graph.maintain("pagerank", **given)
        assert live.result().converged
        graph.insert([0], [100])
        live.result()
        graph.insert(*rng.integers(0, 200, (2, 3000)))  # more than can be gone on from
        for _ in range(2):
            got, want = live.result(), graph.pagerank(**given)
            assert not got.converged
            assert live.report.how == "recomputed"
            np.testing.assert_array_equal(got.to_numpy(), want.to_numpy())
            graph.insert(np.arange(50), np.arange(150, 200))  # not all of them are there already
        before = graph.nbytes
        live.close()
        given["start"].close()
        graph.has_edges([0], [1])
        assert graph.nbytes < before


def test_memory_is_reported_and_freed():
    with DynamicGraph(n_vertices=10_000, directed=False, device="cpu") as graph:
        graph.insert(*line(10_000))
        before = graph.nbytes
        with graph.maintain("connected_components") as one:
            all_neighbor_edges = graph.maintain("sssp", source=0)
            held = graph.nbytes
            assert held > before + 2 * 80_000
            graph.insert(np.arange(0, 5000, 5), np.arange(7, 5007, 5))
            assert graph.nbytes > held
            result = one.result()
        all_neighbor_edges.close()
        all_neighbor_edges.close()
        assert result.components == 1
        result.close()
        graph.degrees([0])
        assert graph.nbytes < before + 80_000
        with pytest.raises(GraphClosed, match="sssp"):
            all_neighbor_edges.result()
        live = graph.maintain("bfs", source=1)
    with pytest.raises(GraphClosed):
        live.result()


def test_what_cannot_be_maintained():
    with DynamicGraph(n_vertices=10, weighted=True, device="cpu") as graph:
        with pytest.raises(InvalidOption, match="'modularity'.*'bfs'"):
            graph.maintain("modularity")
        with pytest.raises(UnknownVertex, match="10"):
            graph.maintain("bfs", source=10)
        with pytest.raises(TypeError):
            graph.maintain("bfs", 0)
        for eager in ("yes", 2, None):
            with pytest.raises(InvalidOption, match=f"^eager is {eager!r}; it must be True or False$"):
                graph.maintain("bfs", eager=eager, source=0)
        for call in (graph.maintain, graph.run):
            with pytest.raises(
                TypeError, match="^bfs: got an unexpected keyword argument 'sorce'; did you mean 'source'.$"
            ):
                call("bfs", sorce=3)
        with pytest.raises(InvalidOption, match="directed=False"):
            graph.maintain("triangles")


@pytest.mark.parametrize("name", ["connected_components", "pagerank", "triangles"])
def test_an_interrupted_read_is_done_again(monkeypatch, name):
    """What was brought up to date when the read was interrupted is not gone on with as if it were older."""
    with DynamicGraph(n_vertices=40, directed=False, device="cpu") as graph:
        graph.insert(*line(40))
        live = graph.maintain(name)
        graph.insert(np.zeros(20, IDS), np.arange(20, dtype=IDS))
        with monkeypatch.context() as patch:
            for moment in ("Tried", "_longest"):
                patch.setattr(worker_live, moment, lambda *_: 1 / 0)
            for _ in range(2):  # while it goes on, and while it is computed again
                with pytest.raises(ZeroDivisionError):
                    live.result()
        assert_same(live, graph, {})
        assert live.report.how == "recomputed"


def test_a_graph_that_grows_from_nothing():
    with DynamicGraph(directed=False, device="cpu") as graph:
        lives = [graph.maintain(name) for name in ("connected_components", "pagerank", "triangles")]
        for ends in (([0, 1], [1, 2]), ([2, 70], [0, 70]), ([500], [3])):
            graph.insert(*ends)
            for live in lives:
                assert_same(live, graph, {})


def test_an_error_leaves_what_can_be_read_again(place):
    with DynamicGraph(place, 10, weighted=True, device="cpu") as graph:
        graph.insert([0, 1], [1, 2], [1, 1])
        live = graph.maintain("sssp", source=0)
        eager = graph.maintain("sssp", eager=True, source=0)
        graph.insert([2], [3], [-1])  # the batch is committed
        for one in (live, eager):
            with pytest.raises(InvalidOption, match="from 2 to 3 has weight -1"):
                one.result()
        graph.insert([2], [3], [4])
        for one in (live, eager):
            assert one.result()[3] == 6


@pytest.mark.parametrize("name", ["bfs", "sssp"])
def test_paths_go_on_after_a_call_that_failed_on_the_workers(client, name):
    with DynamicGraph(client, n_vertices=17, directed=False) as graph:
        graph.insert([0, 8], [1, 9])
        live = graph.maintain(name, source=8)
        for end in (16, 3):
            with pytest.raises(NoPath):  # another exchange replaces the one of the call
                graph.shortest_path(0, 15)
            graph.insert(8, end)
            assert_same(live, graph, {"source": 8})


@pytest.mark.parametrize("deletes", [0, 3])
def test_names_of_components_that_join(deletes: int) -> None:
    rng, n = fresh_rng(), 400
    with DynamicGraph(n_vertices=n, directed=False, order="degree", device="cpu") as graph:
        edges = set()
        insert = rng.integers(0, n, (2, 60))
        graph.insert(*insert)
        graph.reorder()
        edges |= set(zip(*insert.tolist(), strict=True))
        with graph.maintain("connected_components") as live:
            for _ in range(25):
                insert = rng.integers(0, n, (2, 12))
                graph.insert(*insert)
                edges |= set(zip(*insert.tolist(), strict=True))
                gone = [sorted(edges)[i] for i in rng.permutation(len(edges))[:deletes]]
                if gone:
                    graph.delete(*zip(*gone, strict=True))
                    edges -= {pair for u, v in gone for pair in ((u, v), (v, u))}
                result, oracle = live.result(), nx.Graph(edges)
                oracle.add_nodes_from(range(n))
                want = np.empty(n, np.int64)
                for part in nx.connected_components(oracle):
                    want[list(part)] = min(part)
                np.testing.assert_array_equal(result.to_numpy(), want)
                assert result.components == len(np.unique(want))
