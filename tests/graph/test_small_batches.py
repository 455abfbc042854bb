"""Small batches that share a call: they are decided together, and reported as if they came one after another."""

from __future__ import annotations

import copy
import errno
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from failing_allocations import FailingAllocations, watched
from graph_clusters import HERE, assert_clean, on
from graph_model import GraphModel, random_batch
from patience import patience
from plain_graph import fresh_rng
from small_batches import KINDS, MAINTAINED, N, check_results, check_same, counts, edges, some, timed
from time_model import TimeModel, edges_of, random_timed

from mgraph import CapacityError, DynamicGraph, EdgeBatch, MgraphError, StoreError, UnknownVertex
from mgraph.client.batches import updates
from mgraph.local import coordinator
from mgraph.log import segments
from mgraph.log.files import File
from mgraph.structures import names
from mgraph.worker.calls import changes
from mgraph.worker.commit import ballot
from mgraph.worker.commit.change import GroupChange
from mgraph.worker.results import maintained

ALONE_SECONDS, SWEEP_SECONDS = coordinator.ALONE_SECONDS, coordinator.SWEEP_SECONDS


def model_of(graph: DynamicGraph) -> GraphModel:
    return GraphModel(graph.num_vertices, graph.directed, graph.weighted, graph._options.combine)


def check(graph: DynamicGraph, model: GraphModel) -> None:
    arcs = model.arcs()
    assert edges(graph) == (arcs if graph.weighted else dict.fromkeys(arcs, 1.0))
    assert graph.num_edges == len(model.edges)
    if graph.reverse:
        degrees = np.bincount([v for _, v in arcs], minlength=graph.num_vertices)
        np.testing.assert_array_equal(graph.degrees(direction="in"), degrees)


def note_groups() -> None:
    """Count the batches that are committed together. They wait for others, and a commit waits for them."""
    GroupChange.together, coordinator.ALONE_SECONDS, coordinator.SWEEP_SECONDS = 0, float("inf"), 0.2
    commit = GroupChange.commit_all = getattr(GroupChange, "commit_all", GroupChange.commit)

    def noted(change: GroupChange) -> None:
        GroupChange.together += change.epochs
        time.sleep(0.003)
        commit(change)

    GroupChange.commit = noted


def noted_groups() -> int:
    GroupChange.commit = GroupChange.commit_all
    coordinator.ALONE_SECONDS, coordinator.SWEEP_SECONDS = ALONE_SECONDS, SWEEP_SECONDS
    return GroupChange.together


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("structure", names())
def test_a_stream_against_the_model_in_process(structure, kind):
    rng = fresh_rng()
    note_groups()
    with DynamicGraph(n_vertices=N, structure=structure, **kind) as graph:
        stream_against_the_model(graph, rng)
    assert noted_groups() > 50


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("size", [1, 2])
def test_a_stream_against_the_model_on_workers(client, size, kind):
    rng = fresh_rng()
    client.run(note_groups)
    with DynamicGraph(**on(client, size), n_vertices=N, **kind) as graph:
        stream_against_the_model(graph, rng)
    assert sum(client.run(noted_groups).values()) > 50
    assert_clean(client)


@pytest.mark.parametrize("kind", [KINDS[1], KINDS[3], KINDS[4]], ids=str)
@pytest.mark.parametrize("sync", ["always", "background"])
@pytest.mark.parametrize("size", [HERE, 1, 2])
def test_every_epoch_of_a_group_is_in_the_store(client, size, sync, kind, tmp_path):
    rng = fresh_rng()
    client.run(note_groups)
    note_groups()
    with DynamicGraph(**on(client, size), n_vertices=N, store=tmp_path, sync=sync, **kind) as graph:
        model, batches = model_of(graph), some(rng, graph.weighted)
        live = graph.maintain("bfs", source=0)
        with graph.pipeline() as pipe:
            pending = [pipe.update(batch) for batch in batches]
        for p, batch in zip(pending, batches, strict=True):
            assert counts(p.result()) == model.update(batch)
        check(graph, model)
        np.testing.assert_array_equal(live.result().to_numpy(), graph.bfs(0).to_numpy())
    assert sum(client.run(noted_groups).values()) + noted_groups() > 20
    for epoch in sorted({*rng.integers(0, 100, 4).tolist(), 100}):
        with DynamicGraph.open(tmp_path, epoch=epoch) as graph:
            model = model_of(graph)
            for batch in batches[:epoch]:
                model.update(batch)
            check(graph, model)


def stream_against_the_model(graph: DynamicGraph, rng: np.random.Generator) -> None:
    """Send batches, with reads and other changes between them; compare reports, metrics and the graph."""
    model, sent, epoch = model_of(graph), [], 0
    for _ in range(3):
        with graph.pipeline() as pipe:
            for at, batch in enumerate(some(rng, graph.weighted)):
                epoch += 1
                sent.append((pipe.update(batch), model.update(batch), epoch))
                if rng.random() < 0.02:
                    check(graph, model)
                if rng.random() < 0.02:
                    assert sent[-1][0].result().epoch == epoch
                if at == 50 and graph.directed:
                    ids = rng.integers(0, N, 2)
                    assert graph.delete_vertices(ids).deleted == model.delete_vertices(ids.tolist())
                    epoch += 1
        check(graph, model)
    for pending, expected, number in sent:
        assert counts(pending.result()) == expected
        assert pending.result().epoch == number
    assert graph.epoch == epoch
    assert graph.metrics()["batches"] >= len(sent)


def against_single_batches(
    graph: DynamicGraph, oracle: DynamicGraph, names: list[Any], rng: np.random.Generator
) -> None:
    """Send batches to `graph` in a pipeline, and to `oracle` one by one; read the maintained results of both."""
    batches, sent = timed(rng, graph, 120), []
    pairs = [(graph.maintain(name, **args), oracle.maintain(name, **args)) for name, args in names]
    with graph.pipeline() as pipe:
        for batch in batches:
            sent.append((pipe.update(batch), oracle.update(batch)))
            if rng.random() < 0.03:
                check_same(graph, oracle)
            for ours, theirs in pairs if rng.random() < 0.05 else ():
                check_results(ours, theirs)
    for ours, theirs in pairs:
        check_results(ours, theirs)
    check_same(graph, oracle)
    for pending, report in sent:
        assert (*counts(pending.result()), pending.result().epoch) == (*counts(report), report.epoch)


@pytest.mark.parametrize("size", [HERE, 2])
def test_the_store_has_the_times_of_each_batch_of_a_group(client, size, tmp_path):
    rng = fresh_rng()
    client.run(note_groups)
    note_groups()
    models = [TimeModel()]
    with DynamicGraph(**on(client, size), n_vertices=N, times=True, store=tmp_path) as graph:
        with graph.pipeline() as pipe:
            for now in range(60):
                batch = random_timed(rng, N, 8, now, 5, False)
                models.append(copy.deepcopy(models[-1]))
                models[-1].update(batch)
                pipe.update(batch)
        assert edges_of(graph) == models[-1].edges()
    assert sum(client.run(noted_groups).values()) + noted_groups() > 20
    for epoch in sorted({*rng.integers(0, 60, 5).tolist(), 60}):
        with DynamicGraph.open(tmp_path, epoch=epoch) as graph:
            assert edges_of(graph) == models[epoch].edges()


@pytest.mark.parametrize(("kind", "results"), MAINTAINED, ids=str)
@pytest.mark.parametrize("structure", names())
def test_maintained_results_combined_weights_and_times_as_by_single_batches(structure, kind, results):
    rng = fresh_rng()
    note_groups()
    options = {"n_vertices": N, "structure": structure, **kind}
    with DynamicGraph(**options) as graph, DynamicGraph(**options) as oracle:
        against_single_batches(graph, oracle, results, rng)
    assert noted_groups() > 30


@pytest.mark.parametrize(("kind", "results"), MAINTAINED, ids=str)
@pytest.mark.parametrize("size", [1, 2])
def test_maintained_results_combined_weights_and_times_on_workers(client, size, kind, results):
    rng = fresh_rng()
    client.run(note_groups)
    with DynamicGraph(**on(client, size), n_vertices=N, **kind) as graph, DynamicGraph(n_vertices=N, **kind) as oracle:
        against_single_batches(graph, oracle, results, rng)
    assert sum(client.run(noted_groups).values()) > 30
    assert_clean(client)


@pytest.mark.parametrize("kind", [{"directed": False}, {"weighted": True, "reverse": True}], ids=str)
def test_batches_together_count_towards_the_changes_after_which_communities_are_computed_anew(monkeypatch, kind):
    """Edges of a group come and go. They count for each batch, so that the size of groups decides nothing."""
    rng, n = fresh_rng(), 300
    monkeypatch.setattr(maintained, "MOST", 500)
    note_groups()
    with DynamicGraph(n_vertices=n, **kind) as graph, DynamicGraph(n_vertices=n, **kind) as oracle:
        whole = EdgeBatch(*rng.integers(0, n, (2, 4000)))
        lives = [g.maintain("leiden") for g in (graph, oracle) if g.update(whole)]
        how = set[str]()
        for count in rng.permutation(np.arange(5, 45, 4)).tolist():
            ends = rng.integers(0, n, (count, 2, 10))
            batches = [EdgeBatch(*both, op=np.full(10, op)) for op in (1, -1) for both in ends]
            with graph.pipeline() as pipe:
                for batch in batches:
                    pipe.update(batch)
            for batch in batches:
                oracle.update(batch)
            how.add(check_results(*lives))
    assert noted_groups() > 100
    assert how >= {"recomputed", "incremental"}


@pytest.mark.parametrize("size", [HERE, 1, 2])
def test_a_maintained_result_has_the_batches_that_were_sent_before_its_read(client, size):
    with DynamicGraph(**on(client, size), n_vertices=300) as graph, graph.maintain("connected_components") as live:
        with graph.pipeline() as pipe:
            for last in range(1, 300):
                pipe.update(EdgeBatch([last - 1], [last]))
                if last % 7 == 0:
                    assert live.result().to_numpy()[: last + 1].tolist() == [0] * (last + 1)
            live.result()
        assert live.epoch == 299


def test_a_maintained_result_waits_for_batches_that_another_thread_applies(monkeypatch):
    began, goes_on, commit = threading.Event(), threading.Event(), GroupChange.commit

    def slow(change: GroupChange) -> None:
        began.set()
        goes_on.wait(patience(20))
        commit(change)

    monkeypatch.setattr(GroupChange, "commit", slow)
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    with DynamicGraph(n_vertices=3) as graph, graph.maintain("connected_components") as live, graph.pipeline() as pipe:
        for i in range(2):
            pipe.update(EdgeBatch([i], [i + 1]))
        assert began.wait(patience(20))
        threading.Timer(0.05, goes_on.set).start()
        assert live.result().to_numpy().tolist() == [0, 0, 0]


@pytest.mark.parametrize("size", [HERE, 1, 2])
@pytest.mark.parametrize("window", [{"window": 40}, {"window_edges": 30}], ids=str)
def test_batches_of_a_window_have_a_ballot_each(client, size, window):
    rng = fresh_rng()
    client.run(note_groups)
    note_groups()
    with DynamicGraph(**on(client, size), n_vertices=N, **window) as graph:
        sent, model = [], TimeModel(**window)
        with graph.pipeline() as pipe:
            for now in range(0, 300, 5):
                batch = random_timed(rng, N, 5, now, 20, False)
                sent.append((pipe.update(batch), model.update(batch)))
        for pending, did in sent:
            assert {name: getattr(pending.result(), name) for name in did} == did
        assert edges_of(graph) == model.edges()
    assert sum(client.run(noted_groups).values()) == noted_groups() == 0


def check_prefix(graph: DynamicGraph, batches: list[EdgeBatch], pending: list[Any], failed: int | None = None) -> None:
    """The first batches are in the graph and reported, the one after them has failed, and the rest was not applied."""
    model, done = model_of(graph), 0
    for batch, p in zip(batches, pending, strict=False):
        if p.exception() is not None:
            break
        done += 1
        assert counts(p.result()) == model.update(batch)
        assert p.result().epoch == done
    assert failed is None or done == failed
    assert all(isinstance(p.exception(), MgraphError | MemoryError) for p in pending[done:])
    assert graph.epoch == done
    check(graph, model)


@pytest.mark.parametrize("combine", ["last", "sum"])
@pytest.mark.parametrize(("structure", "stored"), [*((name, False) for name in names()), ("gpma+", True)])
def test_a_batch_in_the_middle_that_has_no_room_is_the_first_that_is_not_applied(
    monkeypatch, tmp_path, structure, stored, combine
):
    rng, share_runs = fresh_rng(), changes.share_runs
    batches = some(rng, True)
    failed = int(rng.integers(5, 90))
    batches[failed] = EdgeBatch([N - 1], [N - 1], [770.0])

    def refuse(shard: Any, src: Any, dst: Any, weight: Any = None, *rest: Any, **more: Any) -> Any:
        if weight is not None and 770.0 in weight:
            raise CapacityError("no room")
        return share_runs(shard, src, dst, weight, *rest, **more)

    for module in (changes, ballot):
        monkeypatch.setattr(module, "share_runs", refuse)
    options = {"combine": combine, **({"store": tmp_path} if stored else {})}
    with DynamicGraph(n_vertices=N, structure=structure, weighted=True, reverse=True, **options) as graph:
        pending, live = [], graph.maintain("bfs", source=0) if combine == "sum" else None
        with pytest.raises(CapacityError, match=f"no room .*the batch of epoch {failed + 1} in"), graph.pipeline() as p:
            pending.extend(p.update(batch) for batch in batches)
        check_prefix(graph, batches, pending, failed)
        if live is not None:
            np.testing.assert_array_equal(live.result().to_numpy(), graph.bfs(0).to_numpy())
        check_reopened(graph, batches[:failed], tmp_path if stored else None)


def refuse_marked(rank: int, refuse: bool = True) -> None:
    """Have one rank of this process refuse batches with the weight 770, or no more."""
    share_runs = getattr(changes.share_runs, "original", changes.share_runs)
    changes.share_runs = ballot.share_runs = share_runs
    if not refuse:
        return

    def refusing(shard: Any, src: Any, dst: Any, weight: Any = None, *rest: Any, **more: Any) -> Any:
        if shard.rank == rank and weight is not None and 770.0 in weight:
            raise CapacityError("no room")
        return share_runs(shard, src, dst, weight, *rest, **more)

    refusing.original = share_runs
    changes.share_runs = ballot.share_runs = refusing


@pytest.mark.parametrize(
    "kind", [{}, {"combine": "sum", "directed": False}, {"times": True}, {"window": 1000, "combine": "sum"}], ids=str
)
def test_a_batch_in_the_middle_that_one_of_two_workers_refuses(client, kind):
    rng = fresh_rng()
    with DynamicGraph(**on(client, 2), n_vertices=N, weighted=True, **kind) as graph:
        batches, pending, live = some(rng, True), [], graph.maintain("bfs", source=0)
        failed = int(rng.integers(5, 90))
        batches[failed] = EdgeBatch([N - 1, N - 2], [N - 1, N - 2], [770.0, 770.0])
        sent = [EdgeBatch(b.src, b.dst, b.weight, b.op, time=5) for b in batches] if graph.times else batches
        client.run(refuse_marked, int(rng.integers(2)))
        try:
            with pytest.raises(CapacityError, match="no room"), graph.pipeline() as pipe:
                pending.extend(pipe.update(batch) for batch in sent)
        finally:
            client.run(refuse_marked, 0, False)
        check_prefix(graph, batches, pending, failed)
        np.testing.assert_array_equal(live.result().to_numpy(), graph.bfs(0).to_numpy())
        more = EdgeBatch([0], [1], time=5 if graph.times else None)
        assert graph.update(more).epoch == failed + 1
    assert_clean(client)


def check_reopened(graph: DynamicGraph, batches: list[EdgeBatch], store: Path | None) -> None:
    """The graph goes on after these batches, and its store has them, and what follows."""
    more = EdgeBatch([0], [0], [1.0])
    model = model_of(graph)
    for batch in [*batches, more]:
        model.update(batch)
    graph.update(more)
    check(graph, model)
    if store is not None:
        graph.close()
        with DynamicGraph.open(store) as graph:
            assert graph.epoch == len(batches) + 1
            check(graph, model)


@pytest.mark.parametrize("sync", ["always", "background"])
def test_a_disk_that_is_full_in_the_middle_of_a_group(monkeypatch, tmp_path, sync):
    """The batches before the one that has no room stand; when there is room, the graph goes on."""
    rng = fresh_rng()
    batches = some(rng, True)
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    allocate, room = File.allocate, segments.RESERVE + int(rng.integers(1000, 20000))

    def limited(file: File, end: int) -> None:
        if end > room:
            raise OSError(errno.ENOSPC, "No space left on device")
        allocate(file, end)

    with DynamicGraph(n_vertices=N, weighted=True, store=tmp_path, sync=sync) as graph:
        graph._directory.coordinator._session.calls.ballot.log._segments._allocated = 0
        pending = []
        with monkeypatch.context() as patch, pytest.raises(StoreError, match="the disk is full"):
            patch.setattr(File, "allocate", limited)
            with graph.pipeline() as pipe:
                pending.extend(pipe.update(batch) for batch in batches)
        check_prefix(graph, batches, pending)
        assert 0 < graph.epoch < len(batches)
        check_reopened(graph, batches[: graph.epoch], tmp_path)


def test_an_unknown_id_in_the_middle_is_named(monkeypatch):
    """Ids are checked before they are sent. Here they are not, as if vertices were removed meanwhile."""
    rng = fresh_rng()
    batches = some(rng, False)
    failed = int(rng.integers(5, 90))
    batches[failed] = EdgeBatch([0], [N])
    monkeypatch.setattr(updates, "largest_ids", lambda *_: (0, 0))
    with DynamicGraph(n_vertices=N) as graph:
        graph.insert([0], [0])
        graph.delete([0], [0])
        pending = []
        with pytest.raises(UnknownVertex, match=f"epoch {failed + 3} in"), graph.pipeline() as pipe:
            pending.extend(pipe.update(batch) for batch in batches)
        assert graph.epoch == failed + 2
        assert all(p.exception() is None for p in pending[:failed])
        assert all(p.exception() is not None for p in pending[failed:])


@pytest.mark.parametrize(("kind", "stored"), [*((kind, False) for kind in (*KINDS[:3], KINDS[4])), ({}, True)], ids=str)
@pytest.mark.filterwarnings("ignore:.*no room to order")
def test_each_allocation_of_a_group_fails_once(tmp_path, kind, stored):
    """The batches that are reported are in the graph and in its store, and no others."""
    rng, n = fresh_rng(), 300
    batches = [random_batch(rng, n, 60, kind.get("weighted", False)) for _ in range(30)]

    def run(failing: int) -> bool:
        options = {**kind, "store": tmp_path / f"{failing}"} if stored else kind
        with DynamicGraph(n_vertices=n, **options) as graph:
            pending, live = [], graph.maintain("bfs", source=0) if "combine" in kind else None
            with FailingAllocations(failing) as allocations:
                try:
                    with graph.pipeline() as pipe:
                        for batch in batches:
                            pending.append(pipe.update(batch))
                except (MgraphError, MemoryError):
                    assert allocations.fired
            for p in pending:
                assert p.done()
            check_prefix(graph, batches, pending)
            if live is not None:
                np.testing.assert_array_equal(live.result().to_numpy(), graph.bfs(0).to_numpy())
        if stored:
            with DynamicGraph.open(options["store"]) as graph:
                check_prefix(graph, batches, pending)
        return allocations.fired

    with watched():
        assert not run(-1)
        with FailingAllocations(-1) as allocations, DynamicGraph(n_vertices=n, **kind) as graph:
            before = allocations.count
            with graph.pipeline() as pipe:
                for batch in batches:
                    pipe.update(batch)
            count = allocations.count - before
        assert sum(run(failing) for failing in rng.choice(count, min(count, 24), replace=False).tolist()) > 4


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_callback_that_exits_on_the_clients_loop_ends_no_pipeline(client, caplog, error):
    began, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        goes_on.wait(patience(20))

    def end(done: Any) -> None:
        raise error

    with DynamicGraph(client, n_vertices=N) as graph:
        with graph.pipeline() as pipe:
            client.loop.add_callback(hold)  # until the callbacks are there
            assert began.wait(patience(20))
            pending = [pipe.update(EdgeBatch([i], [0])) for i in range(6)]
            for report in pending:
                report.add_done_callback(end)
            goes_on.set()
            assert [report.result(patience(20)).inserted for report in pending] == [1] * 6
        assert graph.num_edges == 6
    assert caplog.text.count(f"a callback of a batch has raised {error.__name__}") == 6
