"""The session layer by itself: coordinator, sessions and shard threads, over real comms, with fake shards."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from functools import partial

import numpy as np
import pytest
from fakes import FakeWorker, LoopThread, assert_clean, fake_cluster, sending, wait_for

from mgraph import protocol
from mgraph.client.batches.pipeline import Pipeline
from mgraph.client.calls.coordinator import Coordinator
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.client.connections import answers, sessions
from mgraph.errors import CapacityError, GraphClosed, MgraphError, WorkerLost
from mgraph.protocol import ShardState

pytestmark = pytest.mark.timeout(60)


def test_answers_come_in_rank_order():
    with fake_cluster(3) as (coordinator, _):
        answers = coordinator.call("echo", {"a": 1}, [{"b": "x"}, {"b": "y"}, {"b": None}])
        assert [(x["rank"], x["a"], x["b"]) for x in answers] == [(0, 1, "x"), (1, 1, "y"), (2, 1, None)]


def test_arrays_cross_whatever_their_layout():
    strided = np.arange(20, dtype=np.uint64)[::2]
    misaligned = np.frombuffer(b"\0" + np.arange(9, dtype=np.float32).tobytes(), np.uint8)[1:].view(np.float32)
    frozen = np.arange(5, dtype=np.int8)
    frozen.flags.writeable = False
    with fake_cluster(1) as (coordinator, _):
        for array in (strided, misaligned, frozen, np.zeros(0, np.uint32), np.array([np.float32(2)])):
            (answer,) = coordinator.call("flags", {"array": array})
            assert answer == {"sum": float(array.sum()), "dtype": str(array.dtype)}


def test_large_answers_travel_in_parts(monkeypatch):
    monkeypatch.setattr(protocol, "PART_BYTES", 1000)
    with fake_cluster(2) as (coordinator, _):
        for n in (0, 125, 126, 12345):
            for rank, answer in enumerate(coordinator.call("big", {"n": n})):
                assert answer["n"] == n
                np.testing.assert_array_equal(answer["array"], np.arange(n) + rank)


def test_an_answer_for_which_there_is_no_room_fails_its_call_and_no_other(monkeypatch):
    monkeypatch.setattr(protocol, "PART_BYTES", 1000)
    with fake_cluster(2) as (coordinator, _):
        with monkeypatch.context() as patch:
            patch.setattr(answers.SplitArray, "__init__", lambda *_: (_ for _ in ()).throw(MemoryError("no room")))
            with pytest.raises(MemoryError, match="no room"):
                coordinator.call("big", {"n": 12345})
        assert [answer["n"] for answer in coordinator.call("big", {"n": 12345})] == [12345] * 2


def test_calls_of_many_threads_reach_the_ranks_in_one_order():
    with fake_cluster(2) as (coordinator, workers):
        threads = [
            threading.Thread(target=lambda: [coordinator.call("echo", {"x": 1}) for _ in range(20)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        coordinator.call("wait")
        for thread in threads:
            thread.join(20)
        assert workers[0].log == workers[1].log
        assert workers[0].log.count("echo") == 80


def test_the_epoch_is_at_no_time_that_of_a_rank_which_is_ahead():
    class Behind:
        """The state of a rank, which is read while another thread reads the epoch."""

        changes = 3

        @property
        def epoch(self) -> int:
            seen.append((known.epoch, known.changes))
            return 3

    seen, known = [], sessions.Sessions("g", ["a", "b"], 1.0)
    known.know([ShardState(epoch=5, changes=5), Behind()])
    assert (seen, known.epoch, known.changes) == ([(0, 0)], 3, 3)


def test_an_error_that_does_not_pickle_keeps_its_text():
    with fake_cluster(1) as (coordinator, _), pytest.raises(MgraphError, match="Local: rank 0"):
        coordinator.call("odd")


def test_arguments_that_do_not_serialize_are_an_error_and_not_a_lost_worker():
    with fake_cluster(2) as (coordinator, _):
        with pytest.raises(TypeError):
            coordinator.call("echo", {"lock": threading.Lock()})
        assert len(coordinator.call("echo")) == 2


def test_results_are_freed_with_the_next_call():
    with fake_cluster(1) as (coordinator, workers):
        coordinator.forget("r1")
        coordinator.forget("r2")
        assert workers[0].log == []
        coordinator.call("echo")
        assert workers[0].log == ["free r1", "free r2", "echo"]


def test_close_frees_the_shards_and_later_calls_say_so():
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("echo")
        coordinator.close()
        coordinator.close()
        assert workers[0].log[-1] == workers[1].log[-1] == "close"
        with pytest.raises(GraphClosed, match="graph g is closed"):
            coordinator.call("echo")


def test_close_during_a_call_of_another_thread():
    with fake_cluster(2) as (coordinator, _):
        raised: list[BaseException] = []

        def call() -> None:
            try:
                coordinator.call("wait", {"ranks": [0, 1]})
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        time.sleep(0.3)
        coordinator.close()
        thread.join(5)
        assert [type(error) for error in raised] == [GraphClosed]


def test_dropped_without_a_word():
    with fake_cluster(2) as (coordinator, workers):
        coordinator.call("echo")
        coordinator.drop()
        assert_clean(workers)
        assert workers[0].log[-1] == "close"


def test_client_loop_ends_before_the_graph_is_closed():
    worker, client = FakeWorker(0), LoopThread("fake-client")
    coordinator = Coordinator("g", LoopRunner(client.loop), [worker.address], {})
    coordinator.open()

    async def cancel_all() -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    client.run(cancel_all())
    client.stop()
    with pytest.raises(GraphClosed, match="client"):
        coordinator.call("inspect")
    coordinator.close()
    assert_clean([worker])
    worker.stop()
    gc.collect()


def test_worker_speaks_another_version(monkeypatch):
    monkeypatch.setattr(sessions, "Hello", partial(protocol.Hello, version=protocol.VERSION + 1))
    with (
        pytest.raises(MgraphError, match=rf"version {protocol.VERSION} .* client version {protocol.VERSION + 1}"),
        fake_cluster(1),
    ):
        pass


def test_worker_has_no_handler():
    worker, client = FakeWorker(0, handler="something_else"), LoopThread("fake-client")
    try:
        with pytest.raises(MgraphError, match="has no mgraph plugin"):
            Coordinator("g", LoopRunner(client.loop), [worker.address], {}).open()
    finally:
        worker.stop()
        client.stop()


def test_a_rank_is_held_once():
    with fake_cluster(1) as (coordinator, workers):
        again = Coordinator("g", coordinator.runner, [workers[0].address], {})
        with pytest.raises(MgraphError, match="rank 0 of graph g is already held"):
            again.open()
        assert len(coordinator.call("echo")) == 1


def test_called_from_the_event_loop_itself():
    with fake_cluster(1) as (coordinator, _):

        async def call() -> None:
            coordinator.call("echo")

        with pytest.raises(RuntimeError, match="event loop"):
            asyncio.run_coroutine_threadsafe(call(), coordinator.runner.loop).result(5)


def test_sessions_end_with_the_coordinator_which_nothing_keeps():
    with fake_cluster(2) as (first, workers):
        coordinator = Coordinator("other", first.runner, first.addresses, {})
        coordinator.open()
        coordinator.call("echo")
        with pytest.raises(CapacityError):
            coordinator.call("fail_together", {"ranks": [1]})
        with Pipeline(coordinator, sending(coordinator), 100) as pipe:
            report = pipe.update({})
        gone = weakref.ref(coordinator)
        del coordinator, pipe
        assert wait_for(lambda: gc.collect() >= 0 and gone() is None)  # a thread may be about to leave a call
        assert report.result().epoch == 1
        assert wait_for(lambda: [list(worker.table.sessions) for worker in workers] == [[("g", 0)], [("g", 1)]])


def test_the_event_loop_cancels_everything_during_a_call():
    with fake_cluster(2) as (coordinator, _):

        async def cancel_all() -> None:
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        threading.Timer(0.3, lambda: asyncio.run_coroutine_threadsafe(cancel_all(), coordinator.runner.loop)).start()
        with pytest.raises((GraphClosed, WorkerLost)):
            coordinator.call("wait", {"ranks": [0, 1]})
        with pytest.raises(WorkerLost):
            coordinator.call("echo")
