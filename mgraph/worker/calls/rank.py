"""One rank of one graph in a worker: its shard, its exchange, its store, and how they end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mgraph.algorithms import WARM
from mgraph.budget import UNLIMITED, Budget, Reservation
from mgraph.calls import CALLS
from mgraph.device import Array, Device
from mgraph.errors import CapacityError, InvalidOption, MgraphError, StoreError
from mgraph.exchange import Exchange
from mgraph.exchange.peer import PeerExchange
from mgraph.failures import Stale, with_place
from mgraph.log.read_only import ReadOnly
from mgraph.protocol import Call, ShardState
from mgraph.shared import Shared, is_large
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.results.maintained import end
from mgraph.worker.sessions.thread import Counters
from mgraph.worker.shard.shard import Shard
from mgraph.worker.stores.storage import Storage

__all__ = ["ExchangeMaker", "Host", "Rank", "Value"]

logger = logging.getLogger(__name__)

Value = dict[str, Any]

#: ``make(name, rank, size, attempt, device, aborted)`` opens an exchange
ExchangeMaker = Callable[[str, int, int, int, Device, Callable[[], bool]], Exchange]


@dataclass(frozen=True)
class Host:
    """What a shard needs from its process.

    Parameters
    ----------
    open_exchange : callable
        Opens an exchange; see `ExchangeMaker`.
    threads : int
        Host threads that kernels may use.
    budget : Budget
        The memory that the process may take, which its other graphs share.
    held : callable
        Returns the Dask data of a key on this worker.
    name : str
        What messages call the process.
    """

    open_exchange: ExchangeMaker
    threads: int
    budget: Budget
    held: Callable[[str], Any]
    name: str = ""


class Rank:
    """One rank of one graph: holds its shard, and replaces its exchange after an aborted attempt.

    Parameters
    ----------
    graph : str
        The graph's id.
    number, size : int
        The rank's number, and how many ranks the graph has.
    aborted : callable
        The function that the exchange's waits poll.
    host : Host

    Attributes
    ----------
    busy : str or None
        The name of the user's function that runs now; other threads may read it.
    device : Device or None
        Where the shard is.
    ballot : Ballot
        Decides on the shard's changes; `MgraphError` before `create`.
    shard : Shard
        The shard of the ballot; `MgraphError` before `create`, too.
    trial : PeerExchange or None
        The memory that is offered to the other ranks, to try whether they can map it.
    """

    def __init__(self, graph: str, number: int, size: int, aborted: Callable[[], bool], host: Host) -> None:
        self.graph, self.number, self.size = graph, number, size
        self.busy: str | None = None
        self.aborted, self.host = aborted, host
        self.exchange: Exchange | None = None
        self.exchange_name = ""
        self.trial: PeerExchange | None = None
        self.device: Device | None = None  #: where the shard is
        self._ballot: Ballot | None = None
        self.compiled = set(WARM)  # algorithms that are compiled
        self.reservation: Reservation | None = None
        self.storage: Storage | None = None
        self.attempt = 0  # the number of the exchange
        self.shared: Shared | None = None  # with the client of the running call
        self.lent: dict[str, dict[str, np.ndarray]] = {}  # copies of results, by the tokens of Dask's tasks

    def take(self, ballot: Ballot) -> None:
        """Hold the shard of this ballot from now on."""
        self._ballot = self.ballot = ballot
        self.shard = ballot.shard

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in ("ballot", "shard"):
                raise MgraphError(f"graph {self.graph}, rank {self.number}: no shard was made")
            raise AttributeError(f"a rank has no attribute {name!r}")

    def received(self) -> None:
        """Release what was reserved for a call's arguments, which are here now. Called on the event loop."""
        reservation, self.reservation = self.reservation, None
        if reservation is not None:
            reservation.release()

    def share(self, shared: Shared | None) -> None:
        """The next call's client shares this memory; arrays of a GPU may lie in its answer."""
        self.shared = shared
        if shared is not None and self.device is not None:
            shared.pin(self.device)

    def prefetch(self, call: Call | None) -> None:
        """Copy the columns of `call`, which comes next, to the GPU while the current call runs."""
        buffers = None if self._ballot is None else self._ballot.shard.prefetch
        if buffers is not None:
            args = {} if call is None else call.args
            columns = CALLS[call.method].columns if call is not None and call.method in CALLS else ()
            buffers.swap([args[name] for name in columns if is_large(args.get(name))])

    def answered(self, array: Array) -> Array:
        """A large array of the device for the answer of the running call: in host memory, where that is needed.

        It stays on a GPU where it can be copied from there into memory that the client shares.
        """
        if self.shared is not None and is_large(array):
            return array
        return self.shard.device.fetch(array.reshape(-1)).reshape(array.shape)

    def with_rank(self, error: BaseException) -> BaseException:
        """Return the error as its client gets it: a `MemoryError` as a `CapacityError`, which names the rank."""
        rank = f"rank {self.number}"
        if isinstance(error, CapacityError):
            return error if error.rank is not None else with_place(error, rank, self.number)
        if not isinstance(error, MemoryError) or (self._ballot is not None and self._ballot.broken):
            return error  # a MemoryError comes from NumPy, CuPy or a user's function
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        where = self._ballot.shard if self._ballot is not None else f"graph {self.graph}, {rank}"
        told = CapacityError(f"{where}: {error or 'no memory is left'}{notes}")
        told.rank = self.number
        return told

    def free(self, results: Iterable[str]) -> None:
        """Free these results, and those that follow the graph; unknown ones are ignored."""
        if self._ballot is not None:
            shard = self._ballot.shard
            for name in results:
                shard.results.pop(name, None)
                if shard.maintained:
                    end(shard, name)

    def settle(self) -> None:
        """Destroy the exchange of the aborted attempt, whole, so that its buffers can be used again."""
        self.received()  # or it never will
        self.end_trial()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.close()
        if self._ballot is not None:
            with suppress(StoreError):  # then the state says that this rank is broken
                self._ballot.make_safe()  # the acknowledgement of an abort tells the epoch

    def forked(self) -> None:
        """In a child process: leave the store to the parent, whose threads write it."""
        if self.storage is not None and self._ballot is not None:
            why = "this graph is a copy in a forked process, and its store is the parent's: the copy has no store"
            self.storage, self._ballot.log = None, ReadOnly(self._ballot.shard.epoch, why)

    def close(self) -> None:
        """Free everything: exchange first, then the shard."""
        self.settle()
        if self._ballot is not None:
            self._ballot.close()
            del self.ballot, self.shard
        self._ballot = None
        storage, self.storage = self.storage, None
        if storage is not None:
            storage.close()
        if self.device is not None and self.device.kind == "cuda":
            self.device.xp.get_default_memory_pool().free_all_blocks()

    @property
    def state(self) -> ShardState:
        """The current state of the rank's shard."""
        ballot, budget = self._ballot, self.host.budget
        left = budget.left() if budget.limited else UNLIMITED
        if ballot is None:
            return ShardState(memory_left=left)
        shard, arcs = ballot.shard, 0
        for structure in shard.structures:
            arcs += structure.num_edges
        state = (
            shard.epoch, shard.changes, shard.generation, shard.lo, shard.hi, shard.num_edges, arcs, shard.nbytes,
            shard.seconds, left, ballot.in_doubt is not None, ballot.broken, bool(shard.stuck_words[0]),
        )  # fmt: skip
        return tuple.__new__(ShardState, state)  # half the time of its own constructor, of each answer

    @property
    def counters(self) -> Counters:
        """What the shard has done; numbers that another thread may read at any time."""
        if self._ballot is None:
            return Counters()
        shard = self._ballot.shard
        return Counters(shard.epoch, shard.num_edges, shard.operations, shard.seconds)

    def end_trial(self) -> None:
        """Take back the memory that was offered to the other ranks."""
        trial, self.trial = self.trial, None
        if trial is not None:
            trial.close()

    def stored(self) -> Storage:
        """The store of this graph; `InvalidOption` if it has none."""
        if self.storage is None or self.storage.log is None:
            raise InvalidOption(f"graph {self.graph} has no store")
        return self.storage

    def owner(self, starts: list[int], generation: int) -> Shard:
        """The shard; `Stale` if the ids were sent by ranges or by an order that have changed since."""
        shard = self.shard
        if generation != shard.generation:
            self.same_ids(generation)
        if tuple(starts) != shard.partition.starts:
            raise Stale(f"{shard}: the ranges of the ranks have changed")
        return shard

    def same_ids(self, generation: int) -> Shard:
        """The shard; `Stale` if the order of the vertices has changed since this generation."""
        shard = self.shard
        if generation != shard.generation:
            raise Stale(f"{shard}: the order of the vertices has changed")
        return shard

    def warm_up(self, name: str, compile: Callable[[], object]) -> None:
        """Compile an algorithm, or what else has a name, before its first run on this shard."""
        if name not in self.compiled:
            logger.info("graph %s, rank %d: compiling %s", self.graph, self.number, name)
            compile()
            self.compiled.add(name)
