"""A cluster of fakes: bare Dask servers with mgraph's sessions on them, each in its own thread, and a fake shard."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from unittest.mock import patch

import numpy as np
from distributed.comm import Comm, connect
from distributed.core import Server
from patience import patience

from mgraph.batch import TOLD
from mgraph.calls import CALLS, Kind, RemoteCall
from mgraph.client.batches.pipeline import Shares
from mgraph.client.calls.coordinator import Coordinator
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.errors import Aborted, CapacityError, MgraphError, StoreError
from mgraph.protocol import PATIENCE_SECONDS, Beat, Call, Hello, Message, ShardState
from mgraph.wire import SESSION_HANDLER, decode, encode
from mgraph.worker.sessions.session import Session
from mgraph.worker.sessions.session_table import SessionTable

_NAMES = (
    "echo", "flags", "sums", "big", "have", "wait", "fail", "deaf", "unsendable", "odd", "vote", "commit_fails",
    "fail_commit_alike", "refusal_fails",
)  # fmt: skip
#: the calls of a fake shard that no other has: as they are, and as "wait_together", in which the ranks communicate
FAKE_CALLS = {
    **{name: RemoteCall(name, Kind.CONTROL) for name in _NAMES},
    **{f"{name}_together": RemoteCall(name, Kind.CONTROL, exchange=True) for name in _NAMES},
}


class Votes:
    """Votes of `size` fake shards: all of them make a batch, or none does."""

    def __init__(self, size: int = 1) -> None:
        self._size, self._changed = size, threading.Condition()
        # Ranks that are ready to make a batch, or None once one of them will not.
        self._ready: dict[Any, set[int] | None] = {}

    def agree(self, batch: Any, rank: int, aborted: Callable[[], bool]) -> None:
        """Wait until all ranks are ready to make `batch`. Raise `Aborted` if one of them is told not to before."""
        with self._changed:
            while (ready := self._ready.setdefault(batch, set())) is not None:
                ready.add(rank)
                if len(ready) == self._size:
                    self._changed.notify_all()
                    return
                if aborted():
                    self._ready[batch] = None
                self._changed.wait(0.01)
            raise Aborted(f"rank {rank} was told to, or another was")


class FakeServant:
    """Answers calls by name, and notes what was done to it in `log`."""

    busy: str | None = None

    batch_times, copy_of = (0,), ""

    def live(self, state: ShardState) -> ShardState:
        return state._replace(epoch=self.epoch, edges=10 * self.epoch, operations=30 * self.epoch, seconds=0.25)

    def __init__(self, hello: Hello, aborted: Callable[[], bool], log: list[str], votes: Votes | None = None) -> None:
        self.hello, self.rank, self.aborted, self.log, self.votes = hello, hello.rank, aborted, log, votes or Votes()
        self.epoch, self.in_doubt, self.broken, self.undecided = 0, False, None, 0
        self.exchanges: list[int] = []
        self.left, self.reserved = 1 << 62, 0
        self.ended, self.stands = Counter[str](), False  # calls by name; True where one waits

    def find(self, method: str, attempt: int) -> Callable[..., dict[str, Any]]:
        self.log.append(method)

        def called(**args: Any) -> dict[str, Any]:
            try:
                return getattr(self, method)(attempt=attempt, **args)
            finally:
                self.ended[method] += 1

        return called

    def with_rank(self, error: BaseException) -> BaseException:
        return error

    def free(self, results: Iterable[str]) -> None:
        self.log.extend(f"free {result}" for result in results)

    def received(self) -> None:
        if self.reserved:
            self.log.append(f"release {self.reserved}")
        self.reserved = 0

    def settle(self) -> None:
        self.received()
        self.log.append("settle")

    def share(self, shared: Any) -> None:
        self.shared = shared

    def prefetch(self, call: Any) -> None:
        self.prefetched = call

    def close(self) -> None:
        self.log.append("close")

    @property
    def state(self) -> ShardState:
        size = {"edges": 10 * self.epoch, "nbytes": 100 * self.epoch, "memory_left": self.left - self.reserved}
        doubts = {"in_doubt": self.in_doubt, "broken": self.broken, "undecided": self.undecided}
        return ShardState(self.epoch, self.epoch, **doubts, **size)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def open_exchange(self, attempt: int) -> dict[str, Any]:
        self.exchanges.append(attempt)
        return {"address": b"%d" % self.rank}

    def connect_exchange(self, attempt: int, addresses: list[bytes]) -> dict[str, Any]:
        return {}

    def echo(self, attempt: int, **args: Any) -> dict[str, Any]:
        return {**args, "rank": self.rank, "attempt": attempt}

    def flags(self, attempt: int, array: np.ndarray) -> dict[str, Any]:
        return {"sum": float(array.sum()), "dtype": str(array.dtype)}

    def sums(self, attempt: int, a: np.ndarray, b: np.ndarray, c: np.ndarray, **more: Any) -> dict[str, Any]:
        return {"sums": [float(array.sum()) for array in (a, b, c)]}

    def big(self, attempt: int, n: int) -> dict[str, Any]:
        return {"array": np.arange(n, dtype=np.int64) + self.rank, "n": n}

    def update(self, attempt: int, epoch: int, seconds: float = 0.0, fails: Iterable[int] = (), **share: Any) -> dict:
        """A batch: takes its time, and fails on some ranks while the others wait for them."""
        if epoch != self.epoch + 1:
            raise MgraphError(f"a batch came as epoch {epoch}")
        self.log.append(f"begin {epoch}")
        if fails:
            return self.fail(attempt, fails)
        time.sleep(seconds)
        self.votes.agree((self.hello.graph, attempt, epoch), self.rank, self.aborted)
        self.epoch = epoch
        return {**dict.fromkeys(TOLD, 0), "inserted": 1, "epoch": epoch}

    def updates(
        self, attempt: int, epoch: int, sizes: np.ndarray, src: np.ndarray, dst: np.ndarray, **rest: Any
    ) -> dict:
        """Small batches: the first entry of `src` says on which rank one fails, that of `dst` how many ms one takes."""
        self.log.append(f"group of {len(sizes)}")
        done: list[int] = []
        for i, at in enumerate((np.cumsum(sizes) - sizes).tolist()):
            try:
                self.update(attempt, epoch + i, dst[at] / 1000, [int(src[at])] if src[at] else ())
            except MgraphError as error:
                error.done = np.array(done)  # type: ignore[attr-defined]
                raise
            done += [int(sizes[i]), 0, 0, 0, 0, 0]
        return {"counts": np.array(done, np.int64), "epoch": self.epoch}

    def begin_at(self, attempt: int, epoch: int, latest: int | None = None) -> dict[str, Any]:
        """As if a store had been read."""
        self.epoch = epoch
        return {}

    def have(self, attempt: int, left: int) -> dict[str, Any]:
        """From now on `left` bytes are left."""
        self.left = left
        return {}

    def reserve(self, attempt: int, nbytes: int, operations: int = 0, columns: bool = False) -> dict[str, Any]:
        self.log.append(f"asked {nbytes}")
        if nbytes > self.left:
            return {"lack": f"rank {self.rank}: {nbytes} bytes are needed and {self.left} are left"}
        self.reserved = nbytes
        return {"lack": None}

    def wait(self, attempt: int, ranks: Iterable[int] = (), seconds: float = 60.0, **share: Any) -> dict[str, Any]:
        """What waiting in an exchange looks like: until aborted."""
        end = time.monotonic() + seconds
        with self._standing():
            while self.rank in ranks and time.monotonic() < end:
                if self.aborted():
                    raise Aborted(f"rank {self.rank} was told to")
                time.sleep(0.02)
        return {}

    @contextmanager
    def _standing(self) -> Iterator[None]:
        self.stands = True
        try:
            yield
        finally:
            self.stands = False

    def fail(self, attempt: int, ranks: Iterable[int], others_wait: bool = True, **share: Any) -> dict[str, Any]:
        if self.rank in ranks:
            raise CapacityError(f"rank {self.rank} has no room")
        return self.wait(attempt, [self.rank]) if others_wait else {}

    def deaf(
        self, attempt: int, ranks: Iterable[int], seconds: float, busy: str | None = None, sources: Any = ()
    ) -> dict[str, Any]:
        """A kernel that polls nothing; or a user's function of this name."""
        self.busy = busy
        if self.rank in ranks:
            with self._standing():
                time.sleep(seconds)
        self.busy = None
        return {}

    def unsendable(self, attempt: int) -> dict[str, Any]:
        return {"lock": threading.Lock()}

    def odd(self, attempt: int, **share: Any) -> dict[str, Any]:
        class Local(Exception):
            pass

        raise Local(f"rank {self.rank}")

    def vote(self, attempt: int, committed: Iterable[int], doubting: Iterable[int]) -> dict[str, Any]:
        """The moment after the vote: some ranks have committed, some wait for its outcome."""
        if self.rank in committed:
            self.epoch += 1
            return {}
        self.in_doubt = self.rank in doubting
        return self.wait(attempt, [self.rank])

    def commit_fails(self, attempt: int, ranks: Iterable[int]) -> dict[str, Any]:
        if self.rank in ranks:
            self.broken = f"rank {self.rank}: the commit failed"
            raise RuntimeError(self.broken)
        self.epoch += 1
        return {}

    def fail_commit_alike(self, attempt: int) -> dict[str, Any]:
        self.broken = "the commit failed"
        raise CapacityError(self.broken)

    def refusal_fails(self, attempt: int, others: str = "", count: int = 1) -> dict[str, Any]:
        """The disk takes no refusal of `count` epochs: after an error of the change, or once its call is aborted.

        With `others` that wait, the rank is aborted; with those that "doubt", it is in doubt.
        """
        self.in_doubt, self.refuses = others == "doubt", count
        if others:
            with suppress(Aborted):
                self.wait(attempt, [self.rank])
        if self.in_doubt:
            raise Aborted("in doubt")
        raise self.not_refused()

    refuses = 0

    def not_refused(self) -> StoreError:
        error = StoreError("a refusal cannot be logged; whether the store has it is known when it is opened again")
        error.undecided = self.undecided = self.epoch + self.refuses
        return error

    def resolve(self, attempt: int, changes: int) -> dict[str, Any]:
        if self.in_doubt:
            self.epoch += int(self.epoch < changes)
            self.in_doubt = False
            if self.refuses:
                raise self.not_refused()
        return {}


class LoopThread:
    """An asyncio event loop in a thread."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self.run(asyncio.sleep(0))  # the loop runs: until then it counts as closed

    def run(self, coroutine: Any, timeout: float = 20) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        tasks = asyncio.all_tasks(self.loop)  # such as a lock's that would be given back a moment later
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=10))
        self.loop.close()


class FakeWorker:
    """A server with a session table, as a worker has one. The workers of a cluster share their `votes`."""

    def __init__(self, number: int, votes: Votes | None = None, handler: str = SESSION_HANDLER) -> None:
        self.log: list[str] = []
        self.thread = LoopThread(f"fake-worker-{number}")
        self.table = SessionTable(lambda hello, aborted: FakeServant(hello, aborted, self.log, votes))
        self.server: Server = self.thread.run(self._start(handler))
        self.address = self.server.address

    async def _start(self, handler: str) -> Server:
        server = Server({handler: self.table.accept})
        await server.listen("tcp://127.0.0.1:0")
        return server

    async def _stop(self) -> None:
        await self.table.close(5)
        await self.server.close()

    def stop(self) -> None:
        self.thread.run(self._stop())
        self.thread.stop()

    @property
    def session(self) -> Session:
        """The one session that is open."""
        (session,) = self.table.sessions.values()
        return session

    def freeze(self, seconds: float) -> None:
        """Hold the event loop up: what a stopped process looks like from outside."""
        self.thread.loop.call_soon_threadsafe(time.sleep, seconds)


class HandClient:
    """A client's end of a session, by hand: one comm, and its messages one by one."""

    def __init__(self, address: str) -> None:
        self.thread = LoopThread("fake-hand")
        self.comm: Comm = self.thread.run(connect(address))

    def open(self, hello: Hello | dict[str, Any]) -> None:
        said = hello if isinstance(hello, dict) else encode(hello)
        self.thread.run(self.comm.write({"op": SESSION_HANDLER, "hello": said}))

    def say(self, message: Message | Any) -> None:
        self.thread.run(self.comm.write(encode(message) if isinstance(message, Message) else message))

    def hear(self, beats: bool = False) -> Any:
        """The next message; beats only where they are asked for."""
        while isinstance(message := decode(self.thread.run(self.comm.read())), Beat) and not beats:
            pass
        return message

    def stop(self) -> None:
        """Close the comm; also twice."""
        if self.thread.loop.is_running():
            self.thread.run(self._close())
            self.thread.stop()

    async def _close(self) -> None:
        await self.comm.close()


@contextmanager
def fake_cluster(size: int, patience: float = PATIENCE_SECONDS) -> Iterator[tuple[Coordinator, list[FakeWorker]]]:
    """An open coordinator on `size` fake workers; asserts that nothing is left of it afterwards."""
    votes = Votes(size)
    workers = [FakeWorker(number, votes) for number in range(size)]
    client = LoopThread("fake-client")
    coordinator = Coordinator(
        "g", LoopRunner(client.loop), [worker.address for worker in workers], {}, patience=patience
    )
    try:
        coordinator.open()
        with patch.dict(CALLS, FAKE_CALLS):
            yield coordinator, workers
    finally:
        coordinator.close()
        assert_clean(workers)
        for worker in workers:
            worker.stop()
        client.stop()


def called(workers: Iterable[FakeWorker], method: str) -> bool:
    """Whether each rank waits in a call, or has ended one of this name."""
    servants = [worker.session.thread._servant for worker in workers]
    return all(servant is not None and (servant.stands or servant.ended[method]) for servant in servants)


def by_comm(coordinator: Any) -> list[str]:
    """Return a list that gets the name of each call that a comm carries from now on."""
    names: list[str] = []
    for session in coordinator.sessions.all:
        ask = session.ask

        async def noted(message: Any, *args: Any, ask: Any = ask) -> Any:
            if isinstance(message, Call):
                names.append(message.method)
            return await ask(message, *args)

        session.ask = noted
    return names


def assert_clean(workers: Iterable[FakeWorker], timeout: float = 5.0) -> None:
    """No sessions, no shard threads."""
    wait_for(lambda: not any(worker.table.sessions for worker in workers) and not shard_threads(), timeout)
    assert not any(worker.table.sessions for worker in workers)
    assert shard_threads() == []


def wait_for(condition: Callable[[], bool], timeout: float = 5.0) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + patience(timeout)
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return true


def shard_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mgraph-")]


def sending(coordinator: Coordinator) -> Callable[..., Any]:
    """For a pipeline whose batches are the arguments of a fake shard: what it sends of one."""
    return lambda args, *_: nullcontext(Shares([dict(args) for _ in coordinator.status.addresses]))
