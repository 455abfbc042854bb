"""Small batches of a pipeline in this process: when those that wait for others are applied."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import wait
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from graph_clusters import add_algorithm, assert_clean
from interrupts import at_line, ctrl_c, in_child, when
from patience import patience

from mgraph import DynamicGraph, EdgeBatch, GraphClosed, MgraphError
from mgraph.algorithms import ALGORITHMS
from mgraph.client.batches import batch_results, pipeline
from mgraph.client.batches import pending as pending_reports
from mgraph.client.calls import batch_group
from mgraph.local import coordinator
from mgraph.log import log, records, segments
from mgraph.worker.calls import changes
from mgraph.worker.commit import ballot

N = 1000

pytestmark = pytest.mark.timeout(60)


#: of the code that applies batches and makes their reports
FILES = {module.__file__ for module in (coordinator, pipeline, batch_results, pending_reports, batch_group)}


def batch(i: int) -> EdgeBatch:
    return EdgeBatch([i % N], [i // N])


@pytest.fixture
def graph():
    with DynamicGraph(n_vertices=N, device="cpu") as graph:
        yield graph
    assert_clean(None)


@pytest.fixture
def never_alone(monkeypatch):
    """Batches wait, also if none came before them, until somebody asks."""
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    monkeypatch.setattr(coordinator.Coordinator, "_sweep", lambda self: None)


def test_batches_are_applied_though_nobody_asks(graph, monkeypatch):
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    with graph.pipeline() as pipe:
        pending = [pipe.update(batch(i)) for i in range(40)]
        assert not wait(pending, patience(5)).not_done
        assert graph.epoch == 40
        assert not wait([pipe.update(batch(40))], patience(5)).not_done  # another thread sweeps
    assert_clean(None)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_callback_that_exits_in_the_thread_that_sweeps_ends_no_pipeline(graph, monkeypatch, caplog, error):
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))

    def end(done: Any) -> None:
        raise error

    with graph.pipeline() as pipe:
        with graph._directory.coordinator._order:  # the thread waits until the callbacks are there
            pending = [pipe.update(batch(i)) for i in range(3)]
            for report in pending:
                report.add_done_callback(end)
        assert not wait(pending, patience(5)).not_done
        assert [report.result(0).inserted for report in pending] == [1, 1, 1]
        pending.append(pipe.update(batch(3)))
    assert (pending[-1].result(0).epoch, graph.num_edges) == (4, 4)
    assert caplog.text.count(f"a callback of a batch has raised {error.__name__}") == 3


def test_a_callback_of_a_batch_that_is_done_may_exit(graph):
    with graph.pipeline() as pipe:
        report = pipe.update(batch(0))
        report.result()
        with pytest.raises(SystemExit):
            report.add_done_callback(sys.exit)


def test_batches_are_applied_after_ctrl_c_at_any_line_that_took_another(graph, monkeypatch):
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    line, reached = 0, True
    while reached:
        with graph.pipeline() as pipe:
            with (
                suppress(KeyboardInterrupt),
                at_line(line, {coordinator.__file__}, lambda: signal.raise_signal(signal.SIGINT)) as came,
            ):
                pipe.update(batch(0))
            assert not wait([pipe.update(batch(1))], patience(5)).not_done
        reached, line = came(), line + 1
    assert line > 5


def test_a_batch_that_comes_alone_does_not_wait(graph, monkeypatch):
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", 0.0)
    with graph.pipeline() as pipe:
        assert all(pipe.update(batch(i)).done() for i in range(5))


@pytest.mark.usefixtures("never_alone")
def test_batches_wait_until_they_are_many_or_somebody_asks(graph):
    with graph.pipeline() as pipe:
        pending = [pipe.update(batch(i)) for i in range(coordinator.MOST - 1)]
        assert graph.epoch == 0
        assert graph._directory.coordinator.queued == coordinator.MOST - 1
        pending.append(pipe.update(batch(63)))
        assert graph.epoch == coordinator.MOST
        pending.append(pipe.update(batch(64)))
        assert not pending[-1].done()
        assert pending[-1].result(0).epoch == 65
        pending.append(pipe.update(batch(65)))
        assert graph.num_edges == 65
        assert graph.degrees().sum() == 66  # a call comes after them
        pending.append(pipe.update(batch(66)))
        large = np.arange(N, dtype=np.uint32).repeat(9)
        pending.append(pipe.update(EdgeBatch(large, large)))
        assert pending[-1].done()
        pending.append(pipe.update(batch(67)))
    assert [p.result(0).epoch for p in pending] == list(range(1, 70))


@pytest.mark.usefixtures("never_alone")
def test_a_callback_may_call_the_graph(graph):
    seen = []
    with graph.pipeline() as pipe:
        for i in range(5):
            pipe.update(batch(i)).add_done_callback(
                lambda done: seen.append((done.result().epoch, graph.degrees([0])[0]))
            )
    assert [epoch for epoch, _ in seen] == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("never_alone")
def test_a_closed_graph_refuses_batches_that_wait(graph):
    with pytest.raises(GraphClosed, match="is closed"), graph.pipeline() as pipe:
        pending = [pipe.update(batch(i)) for i in range(5)]
        graph.close()
        assert all(isinstance(p.exception(0), GraphClosed) for p in pending)


@pytest.mark.usefixtures("never_alone")
def test_ctrl_c_drops_batches_that_wait(graph):
    waiting = threading.Event()
    with when(waiting.is_set, ctrl_c), pytest.raises(KeyboardInterrupt), graph.pipeline() as pipe:
        first = pipe.update(batch(0))
        first.result()
        pending = [pipe.update(batch(i)) for i in range(1, 5)]
        waiting.set()
        threading.Event().wait(30)
    assert (graph.epoch, graph.num_edges) == (1, 1)
    assert all(isinstance(p.exception(0), GraphClosed) for p in pending)
    assert graph.insert([5], [5]).epoch == 2


@pytest.mark.usefixtures("never_alone")
def test_ctrl_c_in_a_read_that_applies_batches_ends_their_pipeline(graph, monkeypatch):
    """Otherwise later batches would take the epochs of those that were dropped."""
    begun, decide = threading.Event(), changes._decide_together

    def waits(rank, *args, **columns):
        begun.set()
        for _ in range(3000):
            rank.shard.exchange.barrier()  # where Ctrl-C ends a call
            threading.Event().wait(0.01)
        return decide(rank, *args, **columns)

    monkeypatch.setattr(changes, "_decide_together", waits)
    with pytest.raises(GraphClosed, match="dropped because of Ctrl-C"), graph.pipeline() as pipe:
        pending = [pipe.update(batch(i)) for i in range(4)]
        with when(begun.is_set, ctrl_c), pytest.raises(KeyboardInterrupt):
            graph.degrees([0])
        monkeypatch.setattr(changes, "_decide_together", decide)
        assert all(isinstance(p.exception(0), GraphClosed) for p in pending)
        pipe.update(batch(4))
    assert (graph.epoch, graph.num_edges) == (0, 0)
    assert graph.insert([5], [5]).epoch == 1


def check_reports(graph: DynamicGraph, reports: dict[int, Any], epoch: int) -> None:
    """Check that the reports of batches have ended, and that their edges are in the graph, or are not, as they say."""
    assert not wait(reports.values(), patience(5)).not_done
    committed = [i for i, report in reports.items() if report.exception(0) is None]
    assert all(isinstance(reports[i].exception(0), GraphClosed) for i in {*reports} - {*committed})
    assert [reports[i].result(0).epoch for i in committed] == [*range(epoch + 1, epoch + 1 + len(committed))]
    sources, targets = np.array([(i % N, i // N) for i in reports]).T
    assert [i for i, is_there in zip(reports, graph.has_edges(sources, targets), strict=True) if is_there] == committed


@pytest.mark.usefixtures("never_alone")
@pytest.mark.filterwarnings("ignore:coroutine")  # which Ctrl-C keeps from being begun
@pytest.mark.parametrize("leaves", [False, True])
def test_ctrl_c_at_any_line_ends_all_reports(graph, leaves):
    """It comes while a read applies batches, and leaves their pipeline's block, or does not."""
    interrupted_at_any_line(graph, leaves, FILES)


@pytest.mark.usefixtures("never_alone")
@pytest.mark.parametrize("sync", ["always", "background"])
def test_ctrl_c_at_any_line_of_a_log_leaves_whole_batches(tmp_path, sync):
    with DynamicGraph(n_vertices=N, device="cpu", store=tmp_path, sync=sync) as graph:
        interrupted_at_any_line(graph, True, {module.__file__ for module in (changes, ballot, log, records, segments)})
        epoch, edges = graph.epoch, graph.to_pandas()
    with DynamicGraph.open(tmp_path) as graph:
        assert (graph.epoch, graph.num_edges) == (epoch, epoch)
        assert graph.to_pandas().equals(edges)


def interrupted_at_any_line(graph: DynamicGraph, leaves: bool, files: set[str]) -> None:
    line, reached, stopped, committed = 0, True, 0, 0
    while reached:
        epoch, reports = graph.epoch, {}
        with suppress(KeyboardInterrupt, GraphClosed), graph.pipeline() as pipe:
            for i in range(3 * line, 3 * line + 3):
                reports[i] = pipe.update(batch(i))
            try:
                with at_line(line, files, lambda: signal.raise_signal(signal.SIGINT)) as came:
                    graph.degrees([0])
            except KeyboardInterrupt:
                stopped += 1
                if leaves:
                    raise
                assert graph._directory.coordinator.queued or all(report.done() for report in reports.values())
        check_reports(graph, reports, epoch)
        committed += graph.epoch - epoch
        reached, line = came(), line + 1
    assert stopped > 100
    assert 50 < committed < 3 * line - 50
    assert graph.num_edges == graph.epoch == committed


@pytest.mark.usefixtures("never_alone")
def test_ctrl_c_twice_while_a_group_is_noted_ends_its_reports(graph, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), graph.pipeline() as pipe:
        reports = {i: pipe.update(batch(i)) for i in range(3)}
        monkeypatch.setattr(pipeline.Pipeline, "group_sent", interrupted)
        monkeypatch.setattr(pipeline.Pipeline, "group_refused", interrupted)
        graph.degrees([0])
    check_reports(graph, reports, 0)
    assert graph.epoch == 0


@pytest.mark.usefixtures("never_alone")
def test_a_signal_handler_at_any_line_applies_no_batch_twice(graph):
    line, reached, refused, inserted = 0, True, 0, 0

    def handle(number: int, frame: object) -> None:
        nonlocal refused, inserted
        try:
            graph.insert([N - 1], [line])
            inserted += 1
        except MgraphError as error:
            refused += "a call was made inside another call of the same graph" in str(error)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        while reached:
            with graph.pipeline() as pipe:
                reports = [pipe.update(batch(i)) for i in range(3 * line, 3 * line + 3)]
                with at_line(line, FILES, lambda: signal.raise_signal(signal.SIGUSR1)) as came:
                    assert graph.degrees([0])[0] >= 0
            epochs = [report.result(0).epoch for report in reports]
            assert epochs == [*range(epochs[0], epochs[0] + 3)]
            reached, line = came(), line + 1
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert refused + inserted == line - 1
    assert min(refused, inserted) > 50
    assert graph.epoch == graph.num_edges == 3 * line + inserted


def test_a_report_is_awaited_for_its_timeout_though_another_call_runs(graph, monkeypatch):
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    running, goes_on = threading.Event(), threading.Event()

    def endless(shard: Any) -> None:
        running.set()
        goes_on.wait(patience(20))
        raise OSError

    def run() -> None:
        with pytest.raises(OSError):
            graph.run("endless")

    add_algorithm("endless", endless, ["value"], [])
    thread = threading.Thread(target=run)
    try:
        with graph.pipeline() as pipe:
            thread.start()
            assert running.wait(patience(5))
            report = pipe.update(batch(0))
            for wait_for in (report.result, report.exception):
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    wait_for(0.1)
                assert 0.1 <= time.monotonic() - began < patience(5)
            goes_on.set()
            assert report.result(patience(5)).epoch == 1
    finally:
        goes_on.set()
        thread.join()
        del ALGORITHMS["endless"]


def test_leaving_the_block_waits_for_batches_that_are_swept(graph, monkeypatch):
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    begun, decide = threading.Event(), changes._decide_together

    def slow(*args: Any, **columns: Any) -> Any:
        begun.set()
        time.sleep(0.3)
        raise RuntimeError("of this test")

    monkeypatch.setattr(changes, "_decide_together", slow)
    with pytest.raises(RuntimeError, match="of this test"), graph.pipeline() as pipe:
        with graph._directory.coordinator._order:  # both are swept together
            reports = [pipe.update(batch(i)) for i in range(2)]
        assert begun.wait(patience(5))
    assert all(report.done() for report in reports)
    monkeypatch.setattr(changes, "_decide_together", decide)
    assert graph.insert([0], [1]).epoch == 1


def test_pipelines_and_calls_of_several_threads(graph):
    epochs, total = [], 300

    def send(first: int) -> None:
        with graph.pipeline() as pipe:
            pending = [pipe.update(batch(first + i)) for i in range(total)]
        epochs.extend(p.result(0).epoch for p in pending)
        assert [p.result(0).epoch for p in pending] == sorted(p.result(0).epoch for p in pending)

    threads = [threading.Thread(target=send, args=(total * k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert graph.degrees().sum() <= 3 * total + 1
        epochs.append(graph.insert([N - 1], [N - 1]).epoch)
    for thread in threads:
        thread.join(patience(20))
    assert sorted(epochs) == list(range(1, graph.epoch + 1))
    assert graph.num_edges == 3 * total + 1


@pytest.mark.usefixtures("never_alone")
def test_a_forked_child_has_the_batches_that_wait(graph):
    with graph.pipeline() as pipe:
        pending = [pipe.update(batch(i)) for i in range(5)]
        child = os.fork()
        if child == 0:
            os._exit(0 if graph.degrees().sum() == 5 == pending[-1].result(5).epoch else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert graph.epoch == 0
    assert graph.epoch == 5


@pytest.mark.filterwarnings("ignore:This process")  # of forks with threads
def test_a_fork_waits_for_batches_that_are_swept(graph, monkeypatch):
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    begun, decide = threading.Event(), changes._decide_together

    def slow(*args: Any, **columns: Any) -> Any:
        begun.set()
        time.sleep(0.2)
        return decide(*args, **columns)

    def work() -> None:
        assert [report.result(0).epoch for report in reports] == [1, 2, 3]
        assert graph.degrees([0])[0] == 1
        with graph.pipeline() as pipe:
            assert pipe.update(batch(3)).result(patience(5)).epoch == 4

    monkeypatch.setattr(changes, "_decide_together", slow)
    with graph.pipeline() as pipe:
        with graph._directory.coordinator._order:  # all three are swept together
            reports = [pipe.update(batch(i)) for i in range(3)]
        assert begun.wait(patience(5))
        assert in_child(work) == 0
    assert graph.epoch == 3


@pytest.mark.filterwarnings("ignore:This process")
def test_a_fork_while_another_thread_looks_for_waiters(graph, never_alone):
    taken, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        with pending_reports._LOCK:
            taken.set()
            goes_on.wait(patience(20))

    with graph.pipeline() as pipe:
        report = pipe.update(batch(0))
        thread = threading.Thread(target=hold)
        thread.start()
        assert taken.wait(patience(5))
        assert in_child(lambda: report.result(patience(5))) == 0
        goes_on.set()
        thread.join()
