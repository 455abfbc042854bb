"""A graph with keys and ``recover="auto"``: a worker is lost during every kind of call, and every answer is right."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

import numpy as np
import pytest
from faults import cut, hit
from graph_clusters import assert_clean
from keyed_model import Model, keys_of
from plain_graph import fresh_rng
from test_recovery import counted, cut_now, in_time, lose

from mgraph import DynamicGraph, EdgeBatch, Operations, WorkerLost

LIMIT = 20.0  #: seconds in which a batch of a pipeline is answered


class Both:
    """A graph with keys that comes back, and its model, changed alike. Each batch brings keys and deletes edges."""

    def __init__(self, client, path, rng, kind, **options) -> None:
        self.rng, self.kind, self.model, self.bound = rng, kind, Model(), 20
        self.graph = DynamicGraph(client, weighted=True, store=path, recover="auto", **options)
        self.update()

    def batch(self, fresh: bool = True):
        """A batch, with keys that were never there if it is fresh, and what it is to count."""
        self.bound += 6 * fresh
        numbers = self.rng.integers(0, self.bound, (2, 80))
        op, weight = np.where(self.rng.random(80) < 0.5, -1, 1), self.rng.integers(1, 9, 80).astype(float)
        op[0], numbers[0, 0] = 1, self.bound - 1 if fresh else numbers[0, 0]
        src, dst = (keys_of(self.kind, ends) for ends in numbers)
        return EdgeBatch(src, dst, weight, op, keys=self.kind), self.model.update(
            src, dst, weight.tolist(), op.tolist()
        )

    def update(self) -> None:
        batch, counts = self.batch()
        assert counted(self.graph.update(batch)) == counts

    def pipeline(self) -> None:
        epoch = self.graph.epoch
        with self.graph.pipeline() as flight:
            pending = []
            for fresh in (False, False, True, False, False, True):
                batch, counts = self.batch(fresh)
                pending.append((flight.update(batch), counts))
        assert [counted(one.result(LIMIT)) for one, _ in pending] == [counts for _, counts in pending]
        assert [one.result(0).epoch for one, _ in pending] == list(range(epoch + 1, epoch + 7))

    def ingest(self) -> None:
        batches = [self.batch() for _ in range(4)]
        reports = self.graph.ingest([batch for batch, _ in batches])
        assert [counted(report) for report in reports] == [counts for _, counts in batches]

    def remove(self) -> None:
        gone = list(self.model.vertices)[::5]
        assert self.graph.delete_vertices(gone).deleted == self.model.remove(gone)

    def add(self) -> None:
        n, self.bound = len(self.model.vertices), self.bound + 3
        brought = keys_of(self.kind, range(self.bound - 3, self.bound))
        assert self.graph.add_vertices(brought) == range(n, n + 3)
        self.model.vertices |= dict.fromkeys(brought)

    def stream(self) -> None:
        """The answers come, or the error that says that they were lost; the updates are there."""
        self.bound += 1
        u, new = next(iter(self.model.vertices)), keys_of(self.kind, [self.bound - 1])[0]
        self.model.update([u], [new], [1.0], [1])
        degree = sum(key == u for key, _ in self.model.edges)
        operations = Operations(["insert", "degree", "neighbors"], [u, u, new], [new, None, None], keys=self.kind)
        with suppress(WorkerLost):
            answers = self.graph.execute(operations)
            assert (answers.degree.tolist(), answers.neighbors.dst.tolist()) == ([degree], [])

    def read(self) -> None:
        graph, model = self.graph, self.model
        assert graph.vertices().tolist() == list(model.vertices)
        frame = graph.to_pandas()
        found = zip(frame["source"].tolist(), frame["target"].tolist(), frame["weight"].tolist(), strict=True)
        assert {(u, v): w for u, v, w in found} == model.edges
        u = next(iter(model.edges))[0]
        assert sorted(graph.neighbors([u]).dst.tolist()) == sorted(v for key, v in model.edges if key == u)

    def gather(self) -> None:
        """A result that is lost between its run and its read is computed again."""
        ranks = self.graph.pagerank()
        assert abs(ranks.to_series().sum() - 1) < 1e-5


CALLS = [
    ("update", "sort", 0), ("update", "commit", 0), ("pipeline", "commit", 1), ("pipeline", "sort", 4),
    ("ingest", "prepare", 2), ("remove", "remove", 0), ("add", "commit vertices", 0), ("stream", "prepare", 0),
    ("stream", "commit", 0), ("gather", "gather", 0), ("remove", "vote", 0), ("pipeline", "vote", 5),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        ("string", CALLS[::6]),
        pytest.param("int64", CALLS[1::4], marks=pytest.mark.slow),
        pytest.param("string", CALLS[::2], marks=pytest.mark.slow),
        pytest.param("int64", CALLS[3::4], marks=pytest.mark.slow),
    ],
)
def test_a_session_is_cut_in_each_kind_of_call(client, tmp_path, kind, calls):
    both = Both(client, tmp_path / "store", fresh_rng(), kind, snapshot_bytes=4000 if kind == "string" else 0)
    with both.graph as graph:
        lose(client, both, calls, cut)
        for call in ("read", "remove", "read"):
            client.run(cut_now, workers=[graph.workers[-1]])
            with in_time():
                getattr(both, call)()
        then = graph.epoch, graph.fingerprint()
    with DynamicGraph.open(client, tmp_path / "store", recover="auto") as graph:
        assert (graph.epoch, graph.fingerprint()) == then
        client.run(cut_now, workers=[graph.workers[0]])
        both.graph = graph
        both.update()
        both.read()
    assert_clean(client)


def test_vertices_are_removed_and_only_a_snapshot_says_so(client, tmp_path):
    """The worker is lost after the removal is in a snapshot, before the client has the answer."""
    with DynamicGraph(client, store=tmp_path / "store", recover="auto", snapshot_bytes=0) as graph:
        graph.insert(["a", "b", "c"], ["b", "c", "a"])
        caller = graph._directory.coordinator._incarnations[-1].caller
        as_it_was = caller.call

        def lost(method, *args, **options):
            answers = as_it_was(method, *args, **options)
            if method != "remove_vertices":
                return answers
            as_it_was("snapshot")
            while as_it_was("writing")[0]["busy"]:
                time.sleep(0.05)
            client.run(cut_now, workers=[graph.workers[1]])
            with pytest.raises(WorkerLost):
                while True:  # until the client knows
                    as_it_was("inspect")
            error = WorkerLost("the answer is lost")
            error.during, caller.sessions.epoch = answers[0]["epoch"], answers[0]["epoch"] - 1
            raise error

        caller.call = lost
        graph.delete_vertices(["b"])
        assert (len(graph.recoveries), graph.vertices().tolist(), graph.epoch) == (1, ["a", "c"], 2)
        graph.insert(["b"], ["c"])
        assert graph.neighbors(["c", "b"]).dst.tolist() == ["a", "c"]


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("part", range(0, len(CALLS), 4))
def test_a_worker_is_killed_in_each_kind_of_call(own_client, tmp_path, part):
    both = Both(own_client, tmp_path / "store", fresh_rng(), "string", snapshot_bytes=2000)
    with both.graph:
        lose(own_client, both, CALLS[part : part + 4], hit, signal.SIGKILL)
    assert_clean(own_client)
