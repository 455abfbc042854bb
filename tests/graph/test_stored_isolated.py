"""Stores of graphs whose vertices leave with their last edge: the same graph again, whatever ended it."""

from __future__ import annotations

import numpy as np
import pytest
from faults import before, cut, refuse
from graph_clusters import HERE, assert_clean, on
from plain_graph import fresh_rng
from time_model import TimeModel, random_timed

from mgraph import DynamicGraph, EdgeBatch
from mgraph.client.batches import updates

KINDS = [
    {"window": 25, "directed": False},
    {"window": 25, "weighted": True, "combine": "sum", "reverse": True},
    {"times": True, "directed": False},
]


class Both:
    """A graph and its model, changed alike. The keys of vertices are those of the model and 1000."""

    def __init__(self, rng: np.random.Generator, kind: dict, graph: DynamicGraph | None = None) -> None:
        how = {name: kind[name] for name in ("directed", "combine", "window") if name in kind}
        self.rng, self.model, self.graph, self.now = rng, TimeModel(**how), graph, 0
        self.weighted, self.added, self.then = kind.get("weighted", False), set(), {}

    def batch(self) -> EdgeBatch:
        self.now += 6
        batch = random_timed(self.rng, 30, 10, self.now, 5, self.weighted)
        self.did, self.added = self.model.update(batch), set()
        ends = (1000 + end.astype(np.int64) for end in (batch.src, batch.dst))
        return EdgeBatch(*ends, batch.weight, batch.op, "int64", batch.time)

    def update(self) -> None:
        batch = self.batch()
        report = self.graph.update(batch)
        assert {name: getattr(report, name) for name in self.did} == self.did
        self.check()

    def pipeline(self) -> None:
        """Only after the last batch of a pipeline do vertices leave."""
        with self.graph.pipeline() as flight:
            for _ in range(3):
                flight.update(self.batch())
        self.check()

    def expire(self) -> None:
        assert self.graph.expire(self.now - 8).expired == self.model.expire(self.now - 8)
        self.added = set()
        self.check()

    def add(self) -> None:
        """Vertices without edges, which stay until the next batch."""
        self.added |= {2000 + self.now, 3000 + self.now}
        self.graph.add_vertices(list(self.added))
        self.check()

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.rng.choice([self.update, self.update, self.pipeline, self.expire, self.add])()

    def what(self) -> tuple[set, dict]:
        """The vertices, and the edges with times and weights."""
        edges = {(1000 + u, 1000 + v): found for (u, v), found in self.model.edges().items()}
        return {end for edge in edges for end in edge} | self.added, edges

    def check(self) -> None:
        assert found(self.graph) == self.what()
        self.then[self.graph.epoch] = self.what()


def found(graph: DynamicGraph) -> tuple[set, dict]:
    frame, directed = graph.to_pandas(), graph.directed
    weights = frame["weight"] if graph.weighted else np.ones(len(frame))
    rows = zip(frame["source"], frame["target"], frame["time"], weights, strict=True)
    edges = {(u, v) if directed else (min(u, v), max(u, v)): (time, weight) for u, v, time, weight in rows}
    vertices = graph.vertices().tolist()
    assert len(set(vertices)) == len(vertices) == graph.num_vertices
    return set(vertices), edges


@pytest.mark.parametrize(
    ("kind", "snapshots"),
    [
        pytest.param(KINDS[0], 0, marks=pytest.mark.slow),
        (KINDS[1], 1500),
        pytest.param(KINDS[2], 1500, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_vertices_without_edges_leave_in_a_store_too(client3, tmp_path, kind, snapshots):
    rng, store = fresh_rng(), tmp_path / "store"
    both = Both(rng, kind)
    made = {**kind, "drop_isolated": True, "keys": "int64", "snapshot_bytes": snapshots, "retain": 0}
    with DynamicGraph(**on(client3, 3), store=store, **made) as graph:
        both.graph = graph
        both.steps(4)
        if not snapshots:
            graph.snapshot()
        both.steps(2)
    for size in (HERE, 2):
        place = {"client": None, **on(client3, size)}
        with DynamicGraph.open(store=store, **place) as graph:
            both.graph = graph
            both.check()
            both.steps(2)
            for epoch in rng.choice(list(both.then), 2 if size == HERE else 1):
                with graph.at(int(epoch)) as earlier:
                    assert found(earlier) == both.then[epoch]
    assert_clean(client3)


@pytest.mark.parametrize("disks", ["shared", pytest.param("local", marks=pytest.mark.slow)])
def test_a_session_is_cut_while_vertices_leave(client3, tmp_path, disks):
    both = Both(fresh_rng(), KINDS[0])
    how = {"drop_isolated": True, "keys": "int64", "recover": "auto", "disks": disks}
    with DynamicGraph(client3, store=tmp_path / "store", **how, **KINDS[0]) as graph:
        both.graph = graph
        both.update()
        stages = [("remove", 0), ("switch", 0), ("vote", 0), ("vote", 1)]
        for number, (stage, at) in enumerate(stages[:2] if disks == "shared" else stages):
            client3.run(before, stage, cut, at=at, workers=[graph.workers[number % len(graph.workers)]])
            both.now += 40  # all edges leave
            both.update()
            assert len(graph.recoveries) == number + 1
    with DynamicGraph.open(client3, tmp_path / "store", workers=graph.workers) as graph:
        both.graph = graph
        both.check()
        both.update()
    assert_clean(client3)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_graph_that_ends_before_vertices_have_left(tmp_path, monkeypatch, snapshot):
    """They leave when it is opened. Vertices that were added to have no edges stay."""
    both, store = Both(fresh_rng(), KINDS[1]), tmp_path / "store"

    def ends(*args: object) -> None:
        if snapshot:
            both.graph.snapshot()
        raise KeyboardInterrupt

    with DynamicGraph(store=store, retain=0, drop_isolated=True, keys="int64", **KINDS[1]) as both.graph:
        both.steps(3)
        both.now += 30
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(updates, "leave_isolated", ends)
            both.update()
    for _ in range(2):  # the second time they are gone already
        with DynamicGraph.open(None, store, retain=0) as both.graph:
            both.check()
    with DynamicGraph.open(None, store, retain=0) as both.graph:
        both.add()
        if snapshot:
            both.graph.snapshot()
    with DynamicGraph.open(None, store, retain=0) as both.graph:
        both.check()
        both.update()
        for epoch, what in both.then.items():
            with both.graph.at(epoch) as earlier:
                assert found(earlier) == what


def test_no_room_for_vertices_to_leave(client3, tmp_path):
    """They stay until the next batch, and are refused in the log of each rank."""
    both = Both(fresh_rng(), KINDS[0])
    with DynamicGraph(client3, store=tmp_path / "store", drop_isolated=True, keys="int64", **KINDS[0]) as graph:
        both.graph = graph
        both.update()
        client3.run(before, "remove", refuse, workers=[graph.workers[1]])
        both.now += 40
        with pytest.warns(
            UserWarning, match="the batch is committed; vertices without edges could not be removed: .* no room"
        ):
            graph.update(both.batch())
        assert found(graph)[0] > both.what()[0]
        assert found(graph)[1] == both.what()[1]
        both.update()
    with DynamicGraph.open(None, tmp_path / "store") as graph:
        both.graph = graph
        both.check()
