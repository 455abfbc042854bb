"""The session layer by itself: coordinator, links, sessions and shard threads, over real comms, with fake shards."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest
from fakes import FakeWorker, LoopThread, assert_clean, fake_cluster
from interrupts import after, ctrl_c

from mgraph.errors import CapacityError, GraphClosed, GraphLost, MgraphError, WorkerLost
from mgraph.runtime import link, protocol, session
from mgraph.runtime.bridge import Bridge
from mgraph.runtime.coordinator import Coordinator

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
            patch.setattr(link.np, "concatenate", lambda arrays: (_ for _ in ()).throw(MemoryError("no room")))
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


def test_one_rank_fails_while_the_other_waits_for_it():
    with fake_cluster(2) as (coordinator, workers):
        began = time.monotonic()
        with pytest.raises(CapacityError, match="rank 1 has no room"):
            coordinator.call("fail", {"ranks": [1]}, connect=True)
        assert time.monotonic() - began < 2
        assert workers[0].log[-1] == workers[1].log[-1] == "settle"
        answers = coordinator.call("echo", connect=True)  # the graph is usable, over a new exchange
        assert [answer["attempt"] for answer in answers] == [1, 1]
        assert workers[0].log[-3:] == ["open_exchange", "connect_exchange", "echo"]


def test_all_ranks_fail_alike_and_nothing_is_aborted():
    with fake_cluster(2) as (coordinator, workers):
        with pytest.raises(TypeError) as raised:
            coordinator.call("echo", {"attempt": 3})
        assert "in call" in raised.value.__notes__[0]  # the worker's traceback
        assert "settle" not in workers[0].log
        assert coordinator.ranks.attempt == 0


def test_an_error_that_does_not_pickle_keeps_its_text():
    with fake_cluster(1) as (coordinator, _), pytest.raises(MgraphError, match="Local: rank 0"):
        coordinator.call("odd")


def test_arguments_that_do_not_serialize_are_an_error_and_not_a_lost_worker():
    with fake_cluster(2) as (coordinator, _):
        with pytest.raises(TypeError):
            coordinator.call("echo", {"lock": threading.Lock()})
        assert len(coordinator.call("echo")) == 2


def test_keyboard_interrupt_during_a_call_leaves_the_graph_usable():
    with fake_cluster(2) as (coordinator, workers):
        began = time.monotonic()
        with after(0.3, ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("wait", {"ranks": [0, 1]}, connect=True)
        assert time.monotonic() - began < 2
        assert workers[0].log[-1] == workers[1].log[-1] == "settle"
        assert len(coordinator.call("echo", connect=True)) == 2


def test_keyboard_interrupt_while_a_rank_polls_nothing():
    with fake_cluster(2) as (coordinator, _):
        with after(0.2, ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("deaf", {"ranks": [1], "seconds": 3.5})
        assert len(coordinator.call("echo", connect=True)) == 2  # waits for the rank to come back


def test_interrupted_batch_that_one_rank_committed_is_committed_by_all():
    with fake_cluster(3) as (coordinator, workers):
        with after(0.2, ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("vote", {"committed": [0], "doubting": [1, 2]})
        assert coordinator.epoch == 1
        assert [answer["epoch"] for answer in coordinator.call("resolve", {"changes": 0})] == [1, 1, 1]
        assert "resolve" in workers[0].log


def test_interrupted_batch_that_no_rank_committed_is_discarded_by_all():
    with fake_cluster(2) as (coordinator, _):
        with after(0.2, ctrl_c), pytest.raises(KeyboardInterrupt):
            coordinator.call("vote", {"committed": [], "doubting": [0]})
        assert coordinator.epoch == 0
        assert [answer["epoch"] for answer in coordinator.call("resolve", {"changes": 1})] == [0, 0]


def test_commit_fails_on_one_rank_and_the_graph_is_lost():
    with fake_cluster(2) as (coordinator, _):
        coordinator.call("commit_fails", {"ranks": []})
        with pytest.raises(RuntimeError, match="the commit failed"):
            coordinator.call("commit_fails", {"ranks": [1]}, connect=True)
        for _ in range(2):
            with pytest.raises(GraphLost, match="last epoch acknowledged by all is 1"):
                coordinator.call("echo")


def test_commit_fails_alike_on_all_ranks_and_the_graph_is_lost():
    with fake_cluster(2) as (coordinator, _):
        with pytest.raises(CapacityError):
            coordinator.call("fail_commit_alike", connect=True)
        with pytest.raises(GraphLost, match="the commit failed"):
            coordinator.call("echo")


def test_worker_closes_during_a_call():
    with fake_cluster(2) as (coordinator, workers):
        threading.Timer(0.2, lambda: workers[1].thread.run(workers[1].table.close(5))).start()
        began = time.monotonic()
        with pytest.raises(WorkerLost, match=f"rank 1, the worker at {workers[1].address}"):
            coordinator.call("wait", {"ranks": [0, 1]})
        assert time.monotonic() - began < 3
        assert workers[0].log[-1] == "settle"  # the survivor was released
        with pytest.raises(WorkerLost, match="rank 1"):
            coordinator.call("echo")


def test_worker_is_lost_after_another_committed():
    with fake_cluster(2) as (coordinator, workers):
        threading.Timer(0.2, lambda: workers[1].thread.run(workers[1].table.close(5))).start()
        with pytest.raises(WorkerLost, match="rank 1"):
            coordinator.call("vote", {"committed": [0], "doubting": [1]})
        with pytest.raises(GraphLost, match="last epoch acknowledged by all is 0"):
            coordinator.call("echo")


def test_worker_falls_silent_during_a_call(monkeypatch):
    monkeypatch.setattr(link, "LOST_SECONDS", 2.0)
    with fake_cluster(2) as (coordinator, workers):
        workers[1].freeze(4)
        began = time.monotonic()
        with pytest.raises(WorkerLost, match="rank 1.*has not answered for 2 s"):
            coordinator.call("wait", {"ranks": [0, 1]})
        assert time.monotonic() - began < 2 + protocol.ABORT_SECONDS


def test_a_slow_rank_is_not_a_lost_one(monkeypatch):
    monkeypatch.setattr(link, "LOST_SECONDS", 1.0)
    monkeypatch.setattr(session, "BEAT_SECONDS", 0.2)
    with fake_cluster(2) as (coordinator, _):
        assert coordinator.call("deaf", {"ranks": [0], "seconds": 3}) == [{}, {}]


def test_a_client_that_was_held_up_does_not_call_its_workers_lost(monkeypatch):
    monkeypatch.setattr(link, "LOST_SECONDS", 1.0)
    monkeypatch.setattr(session, "BEAT_SECONDS", 0.2)
    with fake_cluster(2) as (coordinator, _):
        coordinator.bridge.loop.call_soon_threadsafe(time.sleep, 3)
        assert coordinator.call("deaf", {"ranks": [0], "seconds": 0.5}) == [{}, {}]


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
    coordinator = Coordinator("g", Bridge(client.loop), [worker.address], {})
    coordinator.open()

    async def cancel_all() -> None:
        import asyncio

        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    client.run(cancel_all())
    client.stop()
    with pytest.raises(GraphClosed, match="client"):
        coordinator.call("echo")
    coordinator.close()
    assert_clean([worker])
    worker.stop()
    gc.collect()


def test_worker_speaks_another_version(monkeypatch):
    monkeypatch.setattr(link, "VERSION", protocol.VERSION + 1)
    with (
        pytest.raises(MgraphError, match=rf"version {protocol.VERSION} .* client version {protocol.VERSION + 1}"),
        fake_cluster(1),
    ):
        pass


def test_worker_has_no_handler():
    worker, client = FakeWorker(0, handler="something_else"), LoopThread("fake-client")
    try:
        with pytest.raises(MgraphError, match="has no mgraph plugin"):
            Coordinator("g", Bridge(client.loop), [worker.address], {}).open()
    finally:
        worker.stop()
        client.stop()


def test_one_worker_cannot_be_reached_and_no_session_stays_open(monkeypatch):
    monkeypatch.setattr(link, "LOST_SECONDS", 1.0)
    worker, client = FakeWorker(0), LoopThread("fake-client")
    try:
        with pytest.raises(WorkerLost, match="tcp://127.0.0.1:9 .rank 1."):
            Coordinator("g", Bridge(client.loop), [worker.address, "tcp://127.0.0.1:9"], {}).open()
        assert_clean([worker])
    finally:
        worker.stop()
        client.stop()


def test_a_rank_is_held_once():
    with fake_cluster(1) as (coordinator, workers):
        again = Coordinator("g", coordinator.bridge, [workers[0].address], {})
        with pytest.raises(MgraphError, match="rank 0 of graph g is already held"):
            again.open()
        assert len(coordinator.call("echo")) == 1


def test_called_from_the_event_loop_itself():
    with fake_cluster(1) as (coordinator, _):

        async def call() -> None:
            coordinator.call("echo")

        with pytest.raises(RuntimeError, match="event loop"):
            import asyncio

            asyncio.run_coroutine_threadsafe(call(), coordinator.bridge.loop).result(5)
