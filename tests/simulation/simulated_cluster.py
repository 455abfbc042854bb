"""Workers of a simulation: the product's sessions, ranks and stores, on a virtual machine with clients."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import dask
import model_shard
import virtual_time
from fibers import Killed, Process, Runner, World, world
from simulated_client import PATH, PATIENCE, Client
from simulated_history import History
from virtual_disk import Disk, Faults
from virtual_loop import Loop
from virtual_network import LATER, UNACKNOWLEDGED, Network, VirtualExchange
from virtual_time import clock, wait_for

from mgraph.budget import Budget
from mgraph.calls import CALLS, AfterLoss, Kind, RemoteCall
from mgraph.client.batches import pending, pipeline
from mgraph.client.calls import channel_calls, coordinator, graph_lock, loop_runner, send_lock
from mgraph.client.connections import opening
from mgraph.client.stores import recovery
from mgraph.log import head, log, segments, store
from mgraph.log.recovery_scan import scan_store
from mgraph.log.segments import Segments
from mgraph.log.store import Store
from mgraph.protocol import Hello
from mgraph.worker.calls import HANDLERS, Calls, Host, changes, stores
from mgraph.worker.sessions import session, thread
from mgraph.worker.sessions.session_table import SessionTable
from mgraph.worker.sessions.thread import ShardThread
from mgraph.worker.stores import storage

__all__ = ["RATES", "Cluster", "Setting", "simulated"]

PAUSE = 10.0  #: virtual seconds of a pause, at most: longer than a client's patience
PARTITION = 60.0  #: virtual seconds of a partition, at most, or for which it outlasts the last fault
HANG = 40.0  #: virtual seconds after which a worker that hangs is killed
RATES = ("eio", "full", "unread", "lost", "lying")  #: of a setting: what a disk does wrong
SEGMENT = 1500  #: bytes of a segment of a log


@dataclass(frozen=True)
class Setting:
    """The kind of a run.

    Parameters
    ----------
    kind : "alone" | "recovering" | "rivals" | "published"
        One client that opens its store again after a loss; one whose graph does so by itself; several that want the
        same store; several that share a published graph.
    workers, clients : int
    sync : "always" | "background"
    faults : Faults
    few : float
        Probability that a graph is opened on some of the workers only.
    slow : float
        See `Faults`.
    flip : bool
        True if a bit of a file flips before the last opening.
    """

    kind: str
    workers: int
    clients: int
    sync: str
    eio: float = 0.0
    full: float = 0.0
    unread: float = 0.0
    lost: float = 0.0
    lying: float = 0.0
    few: float = 0.3
    slow: float = 0.1
    flip: bool = False

    @property
    def rates(self) -> list[float]:
        """The probabilities of the faults of the disk."""
        return [getattr(self, name) for name in RATES]


# ---- in place of threads, clocks and files ---------------------------------------------------------------------------


class _Inbox:
    """The inbox of a shard's thread, without descriptors."""

    def __init__(self) -> None:
        self._queue: list[Any] = []
        self._waiting: list[Any] = []
        self._stopped = False

    def put(self, request: Any) -> None:
        self._queue.append(request)
        world().wake(self._waiting)

    def stop(self) -> None:
        self._stopped = True
        world().wake(self._waiting)

    def get(self) -> Any:
        world().give_way()
        while not self._stopped:
            if self._queue:
                return self._queue.pop(0)
            world().block(self._waiting)
        return None

    def peek(self) -> Any:
        return self._queue[0] if self._queue else None

    def close(self) -> None:
        """Free nothing."""


class _ShardThread(ShardThread):
    """A shard's thread in a fiber."""

    def start(self) -> None:
        fiber = world().fiber
        assert fiber is not None
        world().spawn(fiber.process, self.name, self.run)


def _current() -> Cluster:
    assert Cluster.current is not None
    return Cluster.current


def _make_exchange(
    hello: Hello, name: str, rank: int, size: int, attempt: int, device: Any, aborted: Callable[[], bool]
) -> VirtualExchange:
    return VirtualExchange(_current().network, hello.graph, attempt, rank, size, aborted, hello.patience)


@contextmanager
def simulated() -> Iterator[None]:
    """Return a block in which the product's modules get virtual threads, clocks, files and comms."""
    with ExitStack() as stack:
        for module in (log, store, recovery, thread, pipeline, pending):
            stack.enter_context(patch.object(module, "time", clock))
        for module in (segments, head, loop_runner, send_lock, graph_lock, recovery, pipeline):
            stack.enter_context(patch.object(module, "threading", virtual_time))
        for target, name, value in (
            (log, "ThreadPoolExecutor", virtual_time.Jobs),
            (log, "wait_for", wait_for),
            (segments, "CHUNK", 1 << 10),
            (segments, "RESERVE", 1 << 9),
            (storage, "Segments", partial(Segments, segment=SEGMENT)),
            (storage, "keys_at", lambda *args: None),
            (store, "files_at", lambda path: _current().disk),
            (store.uuid, "uuid4", lambda: type("Number", (), {"hex": f"{_current().world.rng.getrandbits(128):032x}"})),
            (session, "ShardThread", _ShardThread),
            (thread, "Inbox", _Inbox),
            (opening, "reach", lambda address, seconds, _: _current().network.connect(address, seconds)),
            (stores, "finish_logs", lambda *args: None),
            (stores.again, "restore", model_shard.restore),
            (changes, "share_runs", model_shard.share_runs),
            (changes, "route", model_shard.route),
            (changes, "BatchChange", model_shard.BatchOfModel),
            (changes, "GroupChange", model_shard.GroupOfModel),
            (channel_calls, "Bell", _Bell),
            # A process that ends without a word finalizes nothing; the registry would keep all of its seed.
            (coordinator, "weakref", SimpleNamespace(finalize=lambda *args: SimpleNamespace())),
        ):
            stack.enter_context(patch.object(target, name, value))
        stack.enter_context(patch.dict(CALLS, contents=RemoteCall("contents", Kind.READ, after_loss=AfterLoss.REPEAT)))
        stack.enter_context(
            patch.dict(HANDLERS, {name: getattr(model_shard, name) for name in ("create", "update", "contents")})
        )
        stack.enter_context(dask.config.set({"mgraph.channels": False}))
        # The coroutines of processes that were killed end with their last reference, at a time that the seed decides.
        stack.enter_context(patch.object(sys, "unraisablehook", _ignore))
        level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        gc.disable()
        gc.freeze()  # a collection then takes a tenth of a seed's time, not all of it
        try:
            yield
        finally:
            Runner.end()
            gc.unfreeze()
            gc.enable()
            gc.collect()
            logging.disable(level)


def _ignore(problem: Any) -> None:
    """Ignore what the coroutines and finalizers of killed processes raise when they are freed."""
    if not asyncio.iscoroutine(problem.object) and problem.exc_type is not Killed:
        sys.__unraisablehook__(problem)


class _Bell:
    """A bell that nobody hears: no call goes by a channel."""

    def ring(self) -> None: ...

    def fileno(self) -> int:
        return 0


# ---- the cluster -----------------------------------------------------------------------------------------------------


class Cluster:
    """Workers, clients, their network and their disk.

    Parameters
    ----------
    world : World
    setting : Setting
    peaceful : bool
        True if no fault comes.
    """

    current: Cluster | None = None

    def __init__(self, world: World, setting: Setting, peaceful: bool) -> None:
        self.world, self.setting, self.peaceful = world, setting, peaceful
        self.network = Network(world, lambda: self.come("vote"))
        self.faults = Faults(*setting.rates, slow=setting.slow)
        self.disk = Disk(world, self.faults, lambda: self.come("sync"))
        self.disk.now["/data"] = self.disk.disk["/data"] = None
        self.history = History(forgetful=setting.sync == "background", damaged=self.faults.damaging)
        self.workers: dict[str, Process] = {}
        self.tables: dict[str, SessionTable] = {}
        self.clients: list[Client] = []
        self.busy = 0  # clients that have not ended their programs
        self.card: tuple[str, tuple[str, ...]] | None = None  # of the published graph: its id and its workers
        self.ends, self.quiet = 0.0, float("inf")  # when the faults so far have ended; when the last one has
        self._hung: list[float] = []  # when workers began to hang
        self._apart: list[tuple[float, float]] = []  # when partitions begin and end
        self._armed: list[tuple[str, str, int, float]] = []
        self.publisher: Process | None = None  # the client that makes it
        self.graphs = 0
        self.story: list[str] = []
        Cluster.current = self
        for number in range(setting.workers):
            self.start_worker(f"sim://worker-{number}")

    def start_worker(self, address: str) -> None:
        """Start the process of a worker."""
        process = self.workers[address] = self.world.process(address.removeprefix("sim://"))
        loop = self.network.loops[process] = Loop(self.world, process)

        def make(hello: Hello, aborted: Callable[[], bool]) -> Calls:
            host = Host(partial(_make_exchange, hello), 1, Budget(lambda: 1 << 62), lambda key: None, address)
            return Calls(hello.graph, hello.rank, hello.size, aborted, host)

        table = self.tables[address] = SessionTable(make)

        async def serve(comm: Any) -> None:
            with suppress(OSError):
                message = await comm.read()
                await table.accept(comm, message["hello"])

        self.network.listeners[address] = process, loop, serve

    def start_client(self, program: tuple[tuple[Any, ...], ...]) -> None:
        """Start a client with its program."""
        self.clients.append(Client(self, len(self.clients), program))
        self.busy += 1

    @property
    def alive(self) -> list[str]:
        """The addresses of the workers that run."""
        return [address for address, process in self.workers.items() if not process.dead]

    @property
    def sessions(self) -> list[tuple[str, int]]:
        """The sessions of the workers that run, but those of published graphs: graph and rank."""
        return [key for address in self.alive for key in self.tables[address].sessions]

    def withdraw(self, client: Process) -> None:
        """Withdraw the name of the published graph from all workers that a client reaches, as `mgraph.unpublish`."""
        for address in self.alive:
            if not self.network.apart(client.name, self.workers[address].name):
                self.tables[address].published.listed("name")

    def tell(self, who: object, what: str) -> None:
        """Add a line to the story of the run."""
        self.story.append(f"{self.world.now:9.4f} {who}: {what}")

    # ---- faults ------------------------------------------------------------------------------------------------------

    def hung_since(self, moment: float) -> float:
        """Return how long a call that began at this moment may have waited for workers that hang, one after another."""
        return HANG * sum(began + HANG > moment for began in self._hung)

    def apart_since(self, moment: float) -> float:
        """Return how long a call that began at this moment may have waited for machines that partitions cut off."""
        ends = UNACKNOWLEDGED + LATER
        return sum(min(end - began, ends) for began, end in self._apart if min(end, began + ends) > moment)

    def inject(self, kind: str, target: int, amount: float, moment: str = "") -> None:
        """Let a fault happen now, or at the next "answer" to a client, or "sync" or "vote" of a rank."""
        if moment:
            self._armed.append((moment, kind, target, amount))
            return
        world, address = self.world, list(self.workers)[target % len(self.workers)]
        client = self.clients[target % len(self.clients)]
        worker = self.workers[address]
        self.ends = max(self.ends, world.now + (HANG if kind == "hang worker" else PAUSE * amount) + amount)
        self.tell("fault", f"{kind}, {worker} or {client.process}, {amount:.2f}")
        match kind:
            case "kill worker":
                self._restart(address, amount)
            case "kill client":
                client.kill(amount)
            case "power" | "end":
                for name in self.workers:
                    self._restart(name, amount)
                if kind == "power":
                    self.history.power_off()
                    self.disk = self.disk.stopped(world.rng)
            case "pause worker":
                world.pause(worker, PAUSE * amount)
            case "kill and pause":
                self._restart(address, amount)
                others = [other for other in self.workers if other != address]
                world.pause(self.workers[world.rng.choice(others or [address])], PAUSE * amount)
            case "hang worker":
                self._hung.append(world.now)
                world.pause(worker, 1000.0)
                world.after(HANG, None, lambda: self._restart(address, amount) if worker.paused else None)
            case "pause client":
                world.pause(client.process, PAUSE * amount)
            case "jump":
                world.jump(world.rng.choice([worker, client.process]), 3 * amount)
            case "slow":
                self.network.slow[worker.name] = amount
                world.after(amount, None, lambda: self.network.slow.pop(worker.name, None))
            case "cut":
                comms = [comm for comm in self.network.comms if not comm.closed()]
                if comms:
                    world.rng.choice(comms).cut()
            case "partition":
                self._divide(worker.name, client.process.name, amount)
            case "interrupt":
                client.interrupt()

    def _divide(self, worker: str, client: str, amount: float) -> None:
        """Cut two machines that are connected, or a worker from all, in one direction or both."""
        rng, now, ranks = self.world.rng, self.world.now, {process.name for process in self.workers.values()}
        pairs = [pair for pair in self.network.connected() if not self.network.apart(*pair)]
        machines = ranks | {one.process.name for one in self.clients}
        match rng.choice(["client", "worker", "all"]):
            case "all":
                pairs = [(worker, other) for other in sorted(machines - {worker})]
            case kind:
                pairs = [pair for pair in pairs if ranks.issuperset(pair) == (kind == "worker")]
                pairs = [rng.choice(pairs or [(worker, client)])]
        sends, hears = rng.choice([(False, False), (False, True), (True, False)])
        pairs = frozenset([*(pairs if not sends else ()), *((pair[::-1] for pair in pairs) if not hears else ())])
        # For less than a client's patience, for longer than a connection lasts, or beyond the last fault.
        seconds = rng.choice([PATIENCE * amount, PARTITION * amount, float("inf")])
        self.network.divide(pairs)
        self._apart.append((now, now + seconds))
        self.tell("fault", f"{sorted(pairs)} are cut for {seconds:.1f} s")
        if seconds < float("inf"):
            self.ends = max(self.ends, now + seconds)
            self.world.after(seconds, None, lambda: self.network.heal(pairs))

    def come(self, moment: str) -> None:
        """Let the faults happen that wait for a moment."""
        due = [fault for fault in self._armed if fault[0] == moment]
        self._armed = [fault for fault in self._armed if fault[0] != moment]
        for _, *fault in due:
            self.inject(*fault)
        self.world.check()

    def heal(self) -> None:
        """Let no further fault happen, and let partitions end."""
        self._armed.clear()
        if self.network.partitions:
            seconds = PARTITION * self.world.rng.random()
            self.ends = max(self.ends, self.world.now + seconds)
            self.world.after(seconds, None, self.network.heal)
        self.faults.eio = self.faults.full = self.faults.unread = 0.0
        self.quiet = max(self.world.now, self.ends)

    def flip(self) -> None:
        """Flip a bit of a file, and note if it looks like the end of a log that a crash has torn."""
        torn = [log for log in scan_store(Store(PATH)).unsynced if log.last is not None]
        path, at = self.disk.flip(PATH)
        self.history.flipped = path
        self.history.torn = any(log.last == path and log.unsynced[0] <= at < log.unsynced[1] for log in torn)
        self.tell("fault", f"a bit flips at {at} of {path}{' in what may be torn' * self.history.torn}")

    def _restart(self, address: str, seconds: float) -> None:
        self.world.kill(self.workers[address])
        self.world.after(seconds, None, lambda: self._revive(address))

    def _revive(self, address: str) -> None:
        if self.workers[address].dead:
            self.start_worker(address)
