"""The lock under which calls are sent: coroutines in the order in which they came, threads only if it is free."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from fakes import LoopThread

from mgraph.client.calls.send_lock import SendLock


def test_coroutines_take_it_in_order_after_a_thread():
    lock, loop, order, here = SendLock(), LoopThread("fake-loop"), [], object()
    assert lock.try_acquire(here)
    assert not lock.try_acquire(object())

    async def take(name: int) -> None:
        async with lock:
            order.append(name)
            await asyncio.sleep(0)
            assert order[-1] == name

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(take(name)) for name in range(5)]
        await asyncio.sleep(0.05)
        assert order == []
        lock.release(object())  # of one that does not hold it
        lock.release(here)
        lock.release(here)
        assert not lock.try_acquire(here)  # others wait for it
        await asyncio.gather(*tasks)

    loop.run(all_of_them())
    loop.stop()
    assert order == [0, 1, 2, 3, 4]
    assert lock.try_acquire(here)


def test_a_cancelled_waiter_hands_it_on():
    async def scenario(when: str) -> None:
        lock, here, ran = SendLock(), object(), []
        assert lock.try_acquire(here)

        async def take(name: str) -> None:
            async with lock:
                ran.append(name)

        first, second = asyncio.create_task(take("first")), asyncio.create_task(take("second"))
        await asyncio.sleep(0)
        if when == "waiting":
            first.cancel()
            await asyncio.sleep(0)
        lock.release(here)
        if when == "handed over":  # the loop has not told it yet
            first.cancel()
        await asyncio.wait([first, second], timeout=5)
        assert ran == ["second"]
        assert lock.try_acquire(here)

    for when in ("waiting", "handed over"):
        asyncio.run(scenario(when))


def test_a_thread_takes_it_while_another_one_looks_whether_it_is_free():
    class Queue(deque):  # the queue of those that wait, at which a thread looks before it takes the lock
        def __len__(self) -> int:
            if threading.current_thread() is slow:
                looks.set()
                taken.wait(0.3)
            return super().__len__()

    lock, looks, taken, holders = SendLock(), threading.Event(), threading.Event(), []
    lock._waiting = Queue()
    slow = threading.Thread(target=lambda: holders.append(lock.try_acquire("slow")))
    slow.start()
    assert looks.wait(5)
    holders.append(lock.try_acquire("quick"))
    taken.set()
    slow.join(5)
    assert sorted(holders) == [False, True]


def test_many_threads_and_coroutines_never_hold_it_together():
    lock, loop, inside, most = SendLock(), LoopThread("fake-loop"), [], []

    async def take() -> None:
        async with lock:
            inside.append(1)
            most.append(len(inside))
            await asyncio.sleep(0)
            inside.pop()

    def thread() -> None:
        for _ in range(300):
            token = object()
            if lock.try_acquire(token):
                inside.append(1)
                most.append(len(inside))
                inside.pop()
            lock.release(token)

    threads = [threading.Thread(target=thread) for _ in range(4)]
    for one in threads:
        one.start()

    async def many() -> None:
        await asyncio.gather(*(take() for _ in range(300)))

    loop.run(many())
    for one in threads:
        one.join()
    loop.stop()
    assert len(most) > 300
    assert set(most) == {1}
