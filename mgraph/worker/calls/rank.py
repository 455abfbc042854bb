"""A graph's rank in a worker: its shard, exchange and store, and their ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mgraph.algorithms import WARM
from mgraph.budget import Budget, Reservation
from mgraph.calls import CALLS
from mgraph.device import Array, Device
from mgraph.errors import CapacityError, InvalidOption, MgraphError, StoreError
from mgraph.exchange import Exchange
from mgraph.exchange.peer import PeerExchange
from mgraph.failures import Stale, with_place
from mgraph.kernels import compile_together
from mgraph.log.read_only import ReadOnly
from mgraph.metrics import BATCH_SECONDS
from mgraph.parallel_copy import fetched
from mgraph.protocol import Call, ShardState
from mgraph.shared import Shared, is_large
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.results.maintained import end
from mgraph.worker.shard.shard import Shard
from mgraph.worker.stores.storage import Storage

__all__ = ["ExchangeMaker", "Host", "Rank", "Value"]

logger = logging.getLogger(__name__)

Value = dict[str, Any]

#: function that opens an exchange: ``make(name, rank, size, attempt, device, aborted)``
ExchangeMaker = Callable[[str, int, int, int, Device, Callable[[], bool]], Exchange]


@dataclass(frozen=True)
class Host:
    """Resources of a process for its shards.

    Parameters
    ----------
    open_exchange : callable
        An `ExchangeMaker`.
    threads : int
        Host threads for kernels.
    budget : Budget
        The process's memory, common to all its graphs.
    data_of : callable
        Returns the Dask data of a key on this worker.
    name : str
        The name of the process in messages.
    rank_of : callable
        Returns the `Rank` of a graph and a number in this process, or None.
    thread_per_rank : bool
        False if the calls of a rank come from several threads, which select its device themselves.
    """

    open_exchange: ExchangeMaker
    threads: int
    budget: Budget
    data_of: Callable[[str], Any]
    name: str = ""
    rank_of: Callable[[str, int], Rank | None] = lambda graph, number: None
    thread_per_rank: bool = True


class _Missing:
    """Descriptor that raises `MgraphError` until a rank has an attribute of its own."""

    def __get__(self, rank: Rank | None, owner: type) -> _Missing:
        if rank is None:
            return self
        raise MgraphError(f"graph {rank.graph}, rank {rank.number}: no shard was made")


class Rank:
    """Rank of a graph: owns its shard, and replaces its exchange after an aborted attempt.

    Parameters
    ----------
    graph : str
        The graph's id.
    number, size : int
        The rank's number, and the number of ranks.
    aborted : callable
        The function that the exchange's waits poll.
    host : Host

    Attributes
    ----------
    busy : str or None
        The name of the running user function; other threads may read it.
    device : Device or None
        The shard's device.
    ballot : Ballot
        Decides on the shard's changes; `MgraphError` before `create`.
    shard : Shard
        The shard of the ballot; `MgraphError` before `create`, too.
    trial : PeerExchange or None
        Memory offered to the other ranks for a test mapping.
    """

    def __init__(self, graph: str, number: int, size: int, aborted: Callable[[], bool], host: Host) -> None:
        self.graph, self.number, self.size = graph, number, size
        self.busy: str | None = None
        self.aborted, self.host = aborted, host
        self.exchange: Exchange | None = None
        self.exchange_name = ""
        self.trial: PeerExchange | None = None
        self.device: Device | None = None
        self._ballot: Ballot | None = None
        self._offered: Shard | None = None
        self.compiled = set(WARM)  # names of compiled algorithms
        self.reservation: Reservation | None = None
        self.storage: Storage | None = None
        self.attempt = 0  # the number of the exchange
        self.recoveries = 0  # losses before this incarnation of the graph
        self.shared: Shared | None = None  # memory shared with the client of the running call
        self.lent: dict[str, dict[str, np.ndarray]] = {}  # copies of results, by the tokens of Dask's tasks
        self._selection = ExitStack()

    def select(self, device: Device) -> None:
        """Take a device, and select it for the rest of the rank's own thread."""
        self.device = device
        device.use()
        if self.host.thread_per_rank:
            self._selection.enter_context(device.selected())

    def take(self, ballot: Ballot) -> None:
        """Adopt the shard of this ballot."""
        self._ballot = self.ballot = ballot
        self.shard = ballot.shard

    def offer(self, shard: Shard) -> None:
        """Pass a new shard from another graph's thread to this rank, whose thread waits for the call `adopt`."""
        self._offered, self.device = shard, shard.device

    def take_offered(self) -> Shard:
        """Return the shard of `offer`, once."""
        shard, self._offered = self._offered, None
        if shard is None:
            raise MgraphError(f"graph {self.graph}, rank {self.number}: no shard was copied for it")
        return shard

    if not TYPE_CHECKING:  # a `__getattr__` would make all attributes slow
        ballot = shard = _Missing()

    def received(self) -> None:
        """Release the memory reserved for a call's arguments, now received. Called on the event loop."""
        reservation, self.reservation = self.reservation, None
        if reservation is not None:
            reservation.release()

    def share(self, shared: Shared | None) -> None:
        """Set the memory shared with the next call's client, which may take arrays from a GPU."""
        self.shared = shared
        if shared is not None and self.device is not None:
            shared.pin(self.device)

    def prefetch(self, call: Call | None) -> None:
        """Prefetch the columns of the next call to the GPU while the current one runs."""
        buffers = None if self._ballot is None else self._ballot.shard.prefetch
        if buffers is not None:
            args = {} if call is None else call.args
            columns = CALLS[call.method].columns if call is not None and call.method in CALLS else ()
            buffers.swap([args[name] for name in columns if is_large(args.get(name))])

    def answered(self, array: Array, kept: bool = True) -> Array:
        """Return a large array of the device for the running call's answer.

        It stays on a GPU if it can be copied to memory that the client shares; otherwise it is fetched to the host: to
        reusable page-locked memory if it is not `kept`.
        """
        if self.shared is not None and is_large(array):
            return array
        if not kept:
            return Device.staged(array)
        return fetched(self.shard.device, array.reshape(-1)).reshape(array.shape)

    def with_rank(self, error: BaseException) -> BaseException:
        """Return an error for the client, with the rank; a `MemoryError` becomes a `CapacityError`."""
        rank = f"rank {self.number}"
        if isinstance(error, CapacityError):
            return error if error.rank is not None else with_place(error, rank, self.number)
        if not isinstance(error, MemoryError) or (self._ballot is not None and self._ballot.broken):
            return error
        # A MemoryError of NumPy, CuPy or a user's function.
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        where = self._ballot.shard if self._ballot is not None else f"graph {self.graph}, {rank}"
        converted = CapacityError(f"{where}: {error or 'no memory is left'}{notes}")
        converted.rank = self.number
        return converted

    def free(self, results: Iterable[str]) -> None:
        """Free these results, also maintained ones; unknown ids are ignored."""
        if self._ballot is not None:
            shard = self._ballot.shard
            for name in results:
                shard.results.pop(name, None)
                if shard.maintained:
                    end(shard, name)

    def settle(self) -> None:
        """Destroy the exchange of an aborted attempt, so that its buffers can be reused."""
        self.received()  # an aborted call may never arrive
        self.end_trial()
        exchange, self.exchange = self.exchange, None
        if exchange is not None:
            exchange.close()
        if self._ballot is not None:
            # The acknowledgement of an abort reports the epoch, so that must be durable.
            with suppress(StoreError):  # then the state reports that this rank is broken
                self._ballot.make_safe()

    def forked(self) -> None:
        """Detach from the store in a child process: the parent's threads write it."""
        if self.storage is not None and self._ballot is not None:
            why = "this graph is a copy in a forked process, and its store is the parent's: the copy has no store"
            self.storage, self._ballot.log = None, ReadOnly(self._ballot.shard.epoch, why)

    def close(self) -> None:
        """Free everything, the exchange first, then the shard."""
        self.settle()
        if self._ballot is not None:
            if self.storage is not None and self._ballot.broken is None:
                self.storage.keep_communities(self._ballot.shard)
            self._ballot.close()
            del self.ballot, self.shard
        self._ballot = self._offered = None
        # The log ends with the shard.
        storage, self.storage = self.storage, None
        if storage is not None:
            storage.close()
        if self.device is not None:
            self.device.release_unused()
        self._selection.close()

    @property
    def state(self) -> ShardState:
        """The current state of the rank's shard."""
        ballot, budget, storage = self._ballot, self.host.budget, self.storage
        left = budget.lately_left()
        if ballot is None:
            return ShardState(memory_left=left)
        shard, log = ballot.shard, None if storage is None else storage.log
        arcs = shard.out_edges.num_edges if len(shard.structures) == 1 else sum(s.num_edges for s in shard.structures)
        # In the order of `ShardState`.
        state = (
            shard.epoch, shard.changes, shard.generation, shard.lo, shard.hi, shard.num_edges, arcs, shard.nbytes,
            shard.seconds, left, ballot.in_doubt is not None, ballot.broken, bool(shard.stuck_words[0]),
            shard.operations, shard.batches, shard.batch_seconds, 0 if log is None else log.durable, self.recoveries,
            0 if log is None else log.undecided,
        )  # fmt: skip
        return tuple.__new__(ShardState, state)  # half the time of its own constructor, in every answer

    def live(self, state: ShardState) -> ShardState:
        """Return `state`, that of the last answer, with the counters as they are now. Other threads may call it."""
        ballot = self._ballot
        if ballot is None:
            return state
        shard, storage = ballot.shard, self.storage
        log = None if storage is None else storage.log
        return state._replace(
            epoch=shard.epoch, edges=shard.num_edges, seconds=shard.seconds, operations=shard.operations,
            batches=shard.batches, batch_seconds=shard.batch_seconds,
            durable=0 if log is None else log.reached_disk(), recoveries=self.recoveries,
        )  # fmt: skip

    @property
    def batch_times(self) -> list[int]:
        """The histogram of the batches' times. Other threads may read it."""
        return [0] * (len(BATCH_SECONDS) + 1) if self._ballot is None else [*self._ballot.shard.batch_times]

    @property
    def copy_of(self) -> str:
        """The id of the graph that this one is a copy of; empty if it is no copy. Other threads may read it."""
        return "" if self._ballot is None else self._ballot.shard.spec.copy_of

    def end_trial(self) -> None:
        """Free the memory offered to the other ranks."""
        trial, self.trial = self.trial, None
        if trial is not None:
            trial.close()

    def stored(self) -> Storage:
        """Return the store of this graph, or raise `InvalidOption`."""
        if self.storage is None or self.storage.log is None:
            log = None if self._ballot is None else self._ballot.log
            why = f"{log.why} and is read-only" if isinstance(log, ReadOnly) else f"graph {self.graph} has no store"
            raise InvalidOption(why)
        return self.storage

    def owner(self, starts: Sequence[int], generation: int) -> Shard:
        """Return the shard, or raise `Stale` for outdated ranges or an outdated order."""
        shard = self.shard
        if generation != shard.generation:
            self.same_ids(generation)
        if starts is not shard.partition.starts and tuple(starts) != shard.partition.starts:
            raise Stale(f"{shard}: the ranges of the ranks have changed")
        return shard

    def same_ids(self, generation: int, n_vertices: int | None = None) -> Shard:
        """Return the shard, or raise `Stale` for an outdated `generation` or, if given, number of vertices."""
        shard = self.shard
        if generation != shard.generation:
            raise Stale(f"{shard}: the order of the vertices has changed")
        if n_vertices not in (None, shard.n_vertices):
            raise Stale(f"{shard}: vertices were added")
        return shard

    def warm_up(self, name: str, compile: Callable[[], object]) -> None:
        """Compile the kernels named `name` before their first run on this shard."""
        if name not in self.compiled:
            logger.info("graph %s, rank %d: compiling %s", self.graph, self.number, name)
            with compile_together():
                compile()
            self.compiled.add(name)
