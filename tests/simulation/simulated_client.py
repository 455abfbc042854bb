"""Clients of a simulation: each makes the changes and reads of a program, by the product's coordinator."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import model_shard
import numpy as np
import virtual_time
from simulated_history import Violation
from virtual_loop import Loop
from virtual_time import clock

from mgraph.batch import TOLD
from mgraph.client.batches.pipeline import Pipeline, Shares
from mgraph.client.calls.coordinator import Coordinator
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.client.stores.recovery import Incarnation, Recovering
from mgraph.client.stores.storing import Storing, report_of, surveyed
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphClosed, GraphLost, MgraphError, StoreError, WorkerLost
from mgraph.failures import Recovered
from mgraph.partition import Partition

if TYPE_CHECKING:
    from simulated_cluster import Cluster

__all__ = ["LONG", "PATH", "PATIENCE", "Client"]

PATH = "/data/store"
PATIENCE = 4.0  #: of the graphs with silent workers
LONG = 120.0  #: virtual seconds after the last fault, in which everything ends
#: virtual seconds that a call takes at most, however workers behave: if its graph is not opened again, or if it is,
#: beside the time in which workers hang or machines are cut off
CALL, RECOVERED = 25.0, 60.0
ENDS = (WorkerLost, GraphLost, GraphClosed)  #: errors after which a change may be there


class _Detour(Exception):
    """The graph cannot be used any more: open it again."""


class Client:
    """A client's process, with a program of changes and reads that it makes one after another.

    After it is killed another process goes on with the program.
    """

    def __init__(self, cluster: Cluster, number: int, program: tuple[tuple[Any, ...], ...]) -> None:
        self._cluster, self.number, self._program = cluster, number, program
        self._at, self.done = 0, False
        self._changes: set[int] = set()  # under way
        self._start()

    def _start(self) -> None:
        world = self._cluster.world
        self.process = world.process(f"client-{self.number}")
        self._loop = self._cluster.network.loops[self.process] = Loop(world, self.process)
        self._graph: Any = None
        self._repair = False
        self._lineage = 0  # of the history, when the graph was opened
        self._fiber = world.spawn(self.process, "program", self._run)

    def kill(self, seconds: float) -> None:
        """End the process; another one goes on later."""
        if not self.done and not self.process.dead:
            self._end_unknown()
            self._cluster.world.kill(self.process)
            self._cluster.world.after(seconds, None, self._start)

    def interrupt(self) -> None:
        """Press Ctrl-C, if a call of the graph runs."""
        if self._changes and not self.process.dead and self._fiber.queue is not None:
            self._cluster.world.interrupt(self._fiber)

    def _end_unknown(self) -> None:
        self._cluster.history.unknown |= self._changes
        self._changes.clear()

    # ---- the program -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._at < len(self._program):
            try:
                if self._graph is None:
                    self._open()
                self._at += 1
                self._step(self._program[self._at - 1])
            except _Detour:
                self._leave()
            except KeyboardInterrupt:  # between two waits of a step
                self._end_unknown()
            self._check_time()
        # Close the graph, or end without a word.
        if self._cluster.world.rng.random() < 0.5:
            self._leave()
        self.done = True
        self._cluster.busy -= 1
        self._cluster.world.kill(self.process)

    def _check_time(self) -> None:
        cluster = self._cluster
        if cluster.world.now > cluster.quiet + LONG:
            raise Violation(f"{self.process} has not ended its program {LONG:g} s after the last fault")

    def _leave(self) -> None:
        graph, self._graph = self._graph, None
        if graph is not None:
            graph.close()

    def _step(self, step: tuple[Any, ...]) -> None:
        kind, *options = step
        began, slept = self._cluster.world.now, self.process.slept
        self._tell(f"{step}")
        try:
            match kind:
                case "insert":
                    self._insert(*options)
                case "pipeline":
                    self._pipeline(*options)
                case "read":
                    self._read()
                case "together":
                    self._together(*options)
                case "durable":
                    self._ask_durable()
                case "sleep":
                    clock.sleep(*options)
                case "reopen":
                    raise _Detour
        except ENDS as error:
            self._lost(error)
        finally:
            seconds = self._cluster.world.now - began - self.process.slept + slept
            apart = self._cluster.apart_since(began)
            most = {"alone": CALL + apart, "rivals": CALL + apart}
            if not self._cluster.history.damaged:
                most["recovering"] = RECOVERED + self._cluster.hung_since(began) + apart
            if seconds > most.get(self._cluster.setting.kind, seconds):
                raise Violation(f"{step} took {seconds:.0f} s: {self._cluster.world.waiting()}")

    def _lost(self, error: BaseException) -> None:
        """Open the graph again after its loss, which needs a reason."""
        self._tell(f"{type(error).__name__}: {error}")
        if self._cluster.peaceful:
            raise Violation(f"a graph is lost, and no fault came: {error}") from error
        raise _Detour from None

    def _tell(self, what: str) -> None:
        self._cluster.tell(self.process, what)

    def _call(self, name: str, **options: Any) -> list[Any]:
        while True:
            with suppress(Recovered):
                return self._graph.call(name, **options)

    def _read(self, opened: bool = False) -> None:
        history = self._cluster.history
        since = history.begin_read()
        ranks = [pickle.loads(answer["contents"]) for answer in self._call("contents")]
        epoch = history.read(ranks, since, self._lineage, opened)
        self._tell(f"epoch {epoch} read: {[number for _, number in ranks[0][1]]}{' after opening' if opened else ''}")

    def _ask_durable(self) -> None:
        history, stopped = self._cluster.history, self._cluster.history.stops
        unread = self._cluster.faults.unread
        try:
            report = report_of(self._graph, Storing(PATH, self._cluster.setting.sync))
        except StoreError as error:  # the list of the snapshots cannot be read
            if not unread:
                raise
            self._tell(f"{error}")
            return
        if report is not None and history.stops == stopped:
            history.durable = max(history.durable, report.durable_epoch)
            self._cluster.come("answer")

    def _together(self, count: int) -> None:
        """Make calls in several threads."""
        problems: list[BaseException] = []

        def work() -> None:
            try:
                self._read()
            except MgraphError as error:
                problems.append(error)

        threads = [virtual_time.Thread(work, "reader") for _ in range(count)]
        for reader in threads:
            reader.start()
        try:
            self._insert(3, (), ())
        finally:
            for reader in threads:
                reader.join()
        for problem in problems:
            raise problem

    def _shares(self, number: int, refuse: tuple[int, ...], fail: tuple[int, ...]) -> list[dict[str, Any]]:
        """Deal a change to the ranks, or send it whole to each."""
        dst = np.arange(self._cluster.history.edges[number], dtype=np.uint32)
        shares: list[dict[str, Any]] = []
        size = len(self._graph.status.addresses)
        if size > 1 and number % 8 < 4 and not (refuse or fail):
            src = np.full(len(dst), number, np.uint32)
            return [{"src": src, "dst": dst, "weight": None, "op": None, "time": None, "whole": True}] * size
        for part in np.array_split(dst, size):
            src = np.full(len(part), number, np.uint32)
            shares.append({"src": src, "dst": part, "weight": None, "op": None, "time": None})
            if refuse or fail:  # it does not go with others in a message
                shares[-1] |= {"refuse": refuse, "fail": fail}
        return shares

    def _begin(self, edges: int) -> int:
        number = self._cluster.history.begin(edges)
        self._changes.add(number)
        return number

    def _insert(self, edges: int, refuse: tuple[int, ...], fail: tuple[int, ...]) -> None:
        """Make a change."""
        number = self._begin(edges)
        try:
            while True:
                with suppress(Recovered):
                    answers = self._graph.call("update", shares=self._shares(number, refuse, fail))
                    break
        except KeyboardInterrupt:
            self._tell(f"change {number}: Ctrl-C")
            self._end_unknown()
        except MgraphError as error:
            self._judge(number, error)
            if isinstance(error, (*ENDS, StoreError)):
                self._lost(error)
        else:
            (epoch,) = {answer["epoch"] for answer in answers}
            self._acknowledge(number, epoch, sum(answer.get("inserted", 0) for answer in answers), self._lineage)

    def _pipeline(self, batches: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]) -> None:
        """Make changes, several of which are in flight."""
        sent: list[tuple[int, Any]] = []
        lineages: dict[int, int] = {}  # in which the graph was when it reported a change: it may be opened again since
        end: MgraphError | None = None
        interrupted = False

        def sending(batch: Any, args: Any, land: Any) -> Any:
            return nullcontext(Shares(self._shares(*batch)))

        try:
            with Pipeline(self._graph, sending, 1 << 12) as pipe:
                for edges, refuse, fail in batches:
                    number = self._begin(edges)
                    sent.append((number, report := pipe.update((number, refuse, fail))))
                    report.add_done_callback(lambda _, number=number: lineages.setdefault(number, self._lineage))
        except KeyboardInterrupt:
            self._tell("a pipeline: Ctrl-C")
            interrupted = True
        except MgraphError as error:
            self._tell(f"a pipeline: {type(error).__name__}: {error}")
            end = error if isinstance(error, (*ENDS, StoreError)) else None
        for number, report in sent:
            # A second Ctrl-C ends the wait for the batches in flight, which then have their outcomes later.
            now = self._cluster.world.now
            end_of_wait = now + (CALL + self._cluster.apart_since(now)) * interrupted
            while not report.done() and self._cluster.world.now < end_of_wait:
                clock.sleep(0.05)
            if not report.done():
                raise Violation(f"change {number} has no outcome after its pipeline")
            error = report.exception()
            if error is not None:
                self._judge(number, error)
            else:
                self._acknowledge(number, report.result().epoch, report.result().inserted, lineages[number])
        self._end_unknown()
        if end is not None:
            self._lost(end)

    def _acknowledge(self, number: int, epoch: int, inserted: int, lineage: int) -> None:
        history = self._cluster.history
        if inserted not in (history.edges[number], -1):  # -1 where the counts were lost
            raise Violation(f"change {number} of {history.edges[number]} edges was reported with {inserted}")
        self._changes.discard(number)
        history.acknowledge(number, epoch, lineage)
        self._tell(f"change {number} is epoch {epoch}")
        self._cluster.come("answer")

    def _judge(self, number: int, error: BaseException) -> None:
        """Note what an error says about a change."""
        self._tell(f"change {number}: {type(error).__name__}: {error}")
        self._changes.discard(number)
        history = self._cluster.history
        if "whether the store has" in str(error):
            history.undecided.add(number)
        elif isinstance(error, ENDS) or self._graph.status.unsettled:
            history.unknown.add(number)
        else:
            history.refuse(number)

    # ---- opening -----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the graph, as soon as that is possible."""
        cluster, kind = self._cluster, self._cluster.setting.kind
        while True:
            try:
                if kind == "published":
                    self._attach()
                elif kind == "recovering":
                    first = self._opened(0)
                    self._graph = Recovering(first, self._reopen, 3)
                else:
                    self._graph = self._opened(0).caller
                self._read(opened=kind != "published")
                return
            except MgraphError as error:
                self._tell(f"cannot open: {type(error).__name__}: {error}")
                self._leave()
                if cluster.history.flipped and isinstance(error, StoreError) and error.reason is None:
                    self._find_damage(error)
                    continue
                if cluster.history.damaged and isinstance(error, StoreError) and cluster.world.now > cluster.quiet:
                    self._at = len(self._program)  # the damage is found
                    raise _Detour from None
                if cluster.world.now > cluster.quiet + LONG:
                    raise Violation(f"the graph cannot be opened: {type(error).__name__}: {error}") from error
            clock.sleep(0.05 + cluster.world.rng.random())

    def _find_damage(self, error: StoreError) -> None:
        """Open the store with `repair`, or end the program where the description of the graph is damaged."""
        history = self._cluster.history
        if history.flipped not in str(error):
            raise Violation(f"a bit of {history.flipped} has flipped, and is not named: {error}") from error
        if history.flipped == f"{PATH}/store.json":
            self._at = len(self._program)
            raise _Detour
        if self._repair:
            raise Violation(f"a store cannot be repaired: {error}") from error
        self._repair = history.repaired = True

    def _reopen(self, lost: Incarnation, generation: int) -> Incarnation:
        """Open the graph again after a loss, for `Recovering`."""
        end = self._cluster.world.now + 60
        while True:
            try:
                incarnation = self._opened(generation, after=lost.caller.status.epoch)
                break
            except (StoreError, WorkerLost, GraphLost):
                if self._cluster.world.now > end:
                    raise
            clock.sleep(0.2)
        return incarnation

    def _coordinator(self, graph: str, addresses: tuple[str, ...]) -> Coordinator:
        return Coordinator(graph, LoopRunner(self._loop), addresses, {}, patience=PATIENCE)

    def _opened(self, generation: int, after: int | None = None) -> Incarnation:
        """Open the graph from its store, with some of the workers; make it, if there is no store."""
        created = self._cluster.history.created
        try:
            return self._made(self._restored, generation, after)
        except StoreError as error:
            if "holds no store" not in str(error):
                raise
            if created:
                raise Violation(f"the store is lost: {error}") from error
        return self._made(self._new, generation, after)

    def _made(self, make: Callable[..., tuple[int, Any]], generation: int, after: int | None) -> Incarnation:
        cluster, rng = self._cluster, self._cluster.world.rng
        alive = cluster.alive
        if not alive:
            raise WorkerLost("there is no worker")
        addresses = tuple(
            rng.sample(alive, rng.randint(1, len(alive)) if rng.random() < cluster.setting.few else len(alive))
        )
        cluster.graphs += 1
        caller = self._coordinator(f"g{cluster.graphs}", addresses)
        try:
            caller.open()
            epoch, counts = make(
                caller, {"sync": cluster.setting.sync, "lag_bytes": 1 << 20, "lag_seconds": 1.0}, after
            )
        except BaseException:
            caller.close()
            raise
        self._lineage = cluster.history.open()
        numbering: Any = Numbering(Partition((0, model_shard.N)), None, generation)
        nothing: Any = None
        return Incarnation(caller, nothing, numbering, nothing, epoch, counts)

    @staticmethod
    def _new(caller: Coordinator, how: dict[str, Any], after: int | None) -> tuple[int, Any]:
        caller.call("create")
        caller.call("create_store", {"path": PATH, "kind": {"n_vertices": model_shard.N}, **how})
        return 0, np.empty((0, len(TOLD)), np.int64)

    def _restored(self, caller: Coordinator, how: dict[str, Any], after: int | None) -> tuple[int, Any]:
        epoch = surveyed(caller, PATH, None, self._repair, True)["epoch"]
        caller.call("create")
        args = {"epoch": epoch, "repair": self._repair, "how": how, "read_only": False, "after": after}
        answers = caller.call("restore", args)
        return epoch, np.sum([answer["counts"] for answer in answers], axis=0).reshape(-1, len(TOLD))

    def _attach(self) -> None:
        """Attach to the published graph; publish it, if there is none."""
        cluster = self._cluster
        if cluster.card is not None:
            self._graph = self._coordinator(*cluster.card)
            try:
                self._graph.open(attach=True)
                self._lineage = cluster.history.lineage
                with self._graph.lock:
                    self._graph.check()
                return
            except ENDS:
                # A worker is gone: withdraw what is left.
                if cluster.card == (self._graph.graph, self._graph.addresses):
                    cluster.card = None
                    cluster.withdraw(self.process)
                raise
        if cluster.publisher is not None and not cluster.publisher.dead:
            raise WorkerLost("no graph is published")
        cluster.publisher = self.process
        cluster.withdraw(self.process)
        try:
            self._graph = self._opened(0).caller
            self._graph.publish("name", b"card")
            self._read(opened=True)
            cluster.card = self._graph.graph, self._graph.addresses
        finally:
            cluster.publisher = None
