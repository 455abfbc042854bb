"""The calls that a client can make on one rank, by name. They run in the shard's thread, and do not use Dask."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mgraph.algorithms import ALGORITHMS, WARM, warm
from mgraph.batch import COUNTS
from mgraph.budget import Budget, Reservation
from mgraph.device import Device, gpu_count, touch_pages
from mgraph.errors import CapacityError, DeviceError, InvalidOption, MgraphError, StoreError
from mgraph.exchange import Exchange
from mgraph.exchange.nccl_api import nccl_installed
from mgraph.exchange.peer import PeerExchange, why_not
from mgraph.exchange.ucxx_api import ucx_installed
from mgraph.log.log import ReadOnly
from mgraph.partition import Partition
from mgraph.protocol import AFTER, ShardState, Stale, retold
from mgraph.structures import Run
from mgraph.structures.mixed import load_kernels
from mgraph.worker.arithmetic import combine, reduced
from mgraph.worker.ballot import Ballot
from mgraph.worker.change import BatchChange, Change, Growth, Record, VerticesChange
from mgraph.worker.fingerprint import fingerprint
from mgraph.worker.ingest import ingest
from mgraph.worker.live import end, follow
from mgraph.worker.memory import map_pages
from mgraph.worker.mixed import Execution, answered, logged, streams
from mgraph.worker.rebalance import Move, by_work
from mgraph.worker.removal import Removal
from mgraph.worker.reorder import by_degree
from mgraph.worker.restore import restore
from mgraph.worker.route import incident_runs, least_bytes, route, share_runs
from mgraph.worker.shard import Result, Shard, ShardSpec, Unconnected
from mgraph.worker.sources import Reader, joined, open_source
from mgraph.worker.storage import How, Storage
from mgraph.worker.together import together

__all__ = ["Calls", "ExchangeMaker", "Host"]

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


class Calls:
    """One rank of one graph: makes its shard, runs calls on it, and replaces its exchange after an aborted attempt.

    Parameters
    ----------
    graph : str
        The graph's id.
    rank, size : int
    aborted : callable
        The function that the exchange's waits poll.
    host : Host

    Attributes
    ----------
    busy : str or None
        The name of the user's function that runs now; other threads may read it.
    """

    def __init__(self, graph: str, rank: int, size: int, aborted: Callable[[], bool], host: Host) -> None:
        self.graph, self.rank, self.size = graph, rank, size
        self.busy: str | None = None
        self._aborted, self._host = aborted, host
        self._exchange: Exchange | None = None
        self._exchange_name = ""
        self._trial: PeerExchange | None = None
        self._device: Device | None = None
        self._ballot: Ballot | None = None
        self._warm = set(WARM)  # algorithms that are compiled
        self._reservation: Reservation | None = None
        self._storage: Storage | None = None
        self._attempt = 0  # the number of the exchange

    # ---- called by the shard's thread --------------------------------------------------------------------------------

    def arrived(self) -> None:
        """What was reserved for a call's arguments is theirs now. Called on the event loop."""
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            reservation.release()

    def find(self, method: str, attempt: int) -> Callable[..., Value | None]:
        """The function of the call `method`, from its arguments to its answer; `MgraphError` if there is none."""
        function = _CALLS.get(method)
        if function is None:
            raise MgraphError(f"graph {self.graph}, rank {self.rank}: no call {method!r}")
        return partial(function, self, **({"attempt": attempt} if method == "open_exchange" else {}))

    def told(self, error: BaseException) -> BaseException:
        """The error as its client gets it: one about memory says where, and a `MemoryError` is a `CapacityError`."""
        rank = f"rank {self.rank}"
        if isinstance(error, CapacityError):
            return error if rank in str(error) else retold(error, rank)
        if not isinstance(error, MemoryError) or (self._ballot is not None and self._ballot.broken):
            return error  # a MemoryError comes from NumPy, CuPy or a user's function
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        where = self._ballot.shard if self._ballot is not None else f"graph {self.graph}, {rank}"
        return CapacityError(f"{where}: {error or 'no memory is left'}{notes}")

    def free(self, results: Iterable[str]) -> None:
        """Free these results, and those that follow the graph; unknown ones are ignored."""
        if self._ballot is not None:
            for name in results:
                self._ballot.shard.results.pop(name, None)
                end(self._ballot.shard, name)

    def settle(self) -> None:
        """Destroy the exchange of the aborted attempt, whole, so that its buffers can be used again."""
        self.arrived()  # or it never will
        self._end_trial()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()
        if self._ballot is not None:
            with suppress(StoreError):  # then the state says that this rank is broken
                self._ballot.make_safe()  # the acknowledgement of an abort tells the epoch

    def close(self) -> None:
        """Free everything: exchange first, then the shard."""
        self.settle()
        if self._ballot is not None:
            self._ballot.close()
        self._ballot = None
        storage, self._storage = self._storage, None
        if storage is not None:
            storage.close()
        if self._device is not None and self._device.kind == "cuda":
            self._device.xp.get_default_memory_pool().free_all_blocks()

    @property
    def state(self) -> ShardState:
        """The current state of the rank's shard."""
        if self._ballot is None:
            return ShardState(memory_left=self._host.budget.left())
        shard = self._ballot.shard
        return ShardState(
            epoch=shard.epoch,
            changes=shard.changes,
            generation=shard.generation,
            lo=shard.lo,
            hi=shard.hi,
            edges=shard.num_edges,
            arcs=sum(structure.num_edges for structure in shard.structures),
            nbytes=shard.nbytes,
            seconds=shard.seconds,
            memory_left=self._host.budget.left(),
            in_doubt=self._ballot.in_doubt is not None,
            broken=self._ballot.broken,
        )

    @property
    def device(self) -> Device | None:
        """Where the shard is; None before `create`."""
        return self._device

    @property
    def shard(self) -> Shard:
        """The shard; `MgraphError` before `create`."""
        return self.ballot.shard

    @property
    def ballot(self) -> Ballot:
        """The ballot that decides on the shard's changes; `MgraphError` before `create`."""
        if self._ballot is None:
            raise MgraphError(f"graph {self.graph}, rank {self.rank}: no shard was made")
        return self._ballot

    # ---- making and connecting ---------------------------------------------------------------------------------------

    def inspect(self) -> Value:
        """The worker's number of GPUs, whether it has UCX and NCCL, and its process id."""
        return {"gpus": gpu_count(), "ucx": ucx_installed(), "nccl": nccl_installed(), "pid": os.getpid()}

    def offer_memory(self, device: str) -> Value:
        """Share memory with the other ranks, to try whether they can map it.

        Returns
        -------
        dict
            `address`: where it is; `why`: why it cannot be shared, or empty.
        """
        try:
            self._trial = PeerExchange(self.rank, self.size, self._aborted, self._made_device(device))
        except (CapacityError, DeviceError) as error:
            return {"address": b"", "why": f"rank {self.rank}: {error}"}
        return {"address": self._trial.address, "why": ""}

    def map_memory(self, device: str, addresses: list[bytes]) -> Value:
        """Try to map what the ranks have offered at `addresses`. The offers end with the next call, `create`.

        Returns
        -------
        dict
            `why`: why it cannot be mapped, or empty.
        """
        why = why_not([bytes(address) for address in addresses], self.rank, self._made_device(device))
        return {"why": f"rank {self.rank}: {why}" if why else ""}

    def _end_trial(self) -> None:
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.close()

    def _made_device(self, name: str) -> Device:
        """The device of that name in this process, in use by this thread."""
        made, host = Device.of(name), self._host
        touch = map_pages if made.kind == "cpu" else touch_pages  # a host of GPUs may have no compiler
        device = Device(made.kind, made.index, host.threads, host.budget, touch)
        device.use()
        return device

    def reserve(self, nbytes: int, operations: int = 0, columns: bool = False) -> Value:
        """Keep memory for the next call, which is about to be sent; asked where its client is not sure of it.

        Parameters
        ----------
        nbytes : int
            Of its arguments, which a comm takes without asking.
        operations : int
            Where it is an update: how many it has, and with `columns` each with an op or a weight. Working on them
            takes memory too: there is no point in sending what cannot be worked on.

        Returns
        -------
        dict
            `lack`: why there is no room, or None.
        """
        self.arrived()
        what = "what is to be sent" if operations == 0 else f"{operations} operations that are to be sent"
        try:
            work = least_bytes(self.shard, operations, columns) if operations else 0
            self._reservation = self._host.budget.reserve(nbytes + work, what)
        except CapacityError as error:
            return {"lack": f"rank {self.rank}: {error}"}
        return {"lack": None}

    def create(
        self,
        device: str,
        exchange: str,
        starts: list[int],
        order: np.ndarray | None = None,
        reserve: int = 0,
        **spec: Any,
    ) -> None:
        """Make an empty shard on `device`, and reserve `reserve` bytes of its memory. The exchange is opened later."""
        self._end_trial()
        self._exchange_name = exchange
        self._device = self._made_device(device)
        self._device.reserve(reserve)
        shape = ShardSpec(self.graph, self.rank, Partition(tuple(starts)), order=order, **spec)
        self._ballot = Ballot(Shard(shape, Unconnected(), self._device))
        warm(self.shard)

    def open_exchange(self, attempt: int) -> Value:
        """Open the exchange of an attempt and return its address."""
        self.settle()
        assert self._device is not None
        make = self._host.open_exchange
        self._exchange = make(self._exchange_name, self.rank, self.size, attempt, self._device, self._aborted)
        self._attempt = attempt
        if self._storage is not None and self._storage.log is not None:
            self._storage.log.attempt = attempt
        return {"address": self._exchange.address}

    def connect_exchange(self, addresses: list[bytes]) -> None:
        """Connect the exchange to the other ranks."""
        assert self._exchange is not None
        self._exchange.connect([bytes(address) for address in addresses])
        self.shard.exchange = self._exchange

    # ---- changes -----------------------------------------------------------------------------------------------------

    def update(
        self,
        epoch: int,
        n_vertices: int | None = None,
        offset: tuple[str, int] | None = None,
        ahead: bool = False,
        keys: np.ndarray | None = None,
        **share: Any,
    ) -> Value:
        """Apply this rank's share of a batch, which all ranks commit as `epoch`, or none does.

        With `n_vertices` the batch brings vertices, and the graph has so many then. `offset` is its place in a source,
        and `keys` has the new vertices' keys, on rank 0, both for the log. If it is `ahead`, others follow it, and one
        sync of the log may do for several.
        """
        shard = self._check_epoch(epoch)
        more: Value = {} if n_vertices is None else {"n_vertices": n_vertices, "keys": keys}
        if offset is not None:
            more["offset"] = str(offset[0]), int(offset[1])
            self._stored().check_offset(more["offset"])
        with self.ballot.attempt(self._record("batch", {**share, **more}), ahead), shard.working():
            growth = None if n_vertices is None else Growth(shard, n_vertices)
            try:
                runs = share_runs(shard, **share)
                share.clear()
                routed = [route(shard, runs.pop(0)) for _ in range(len(runs))]
            except BaseException:
                if growth is not None:
                    growth.undo()
                raise
            done = self._commit_batch(routed, growth)
        return {**done, AFTER: self.ballot.safe} if ahead else done

    def execute(
        self,
        first: int,
        epoch: int | None = None,
        generation: int | None = None,
        n_vertices: int | None = None,
        room: int | None = None,
        ahead: bool = False,
        keys: np.ndarray | None = None,
        **share: Any,
    ) -> Value:
        """Answer the queries of a stream, and apply its updates as `epoch`; None if no rank's share has updates.

        `first` is the place of this rank's share in the stream; `n_vertices` and `keys` are as in `update`. If rows are
        asked for, the client translates their ids by the order of this generation, and `room` is as in `Execution`.
        Also where it is `ahead` of others, in a pipeline, its log is synced before the vote.
        """
        shard = self.shard if epoch is None else self._check_epoch(epoch)
        if generation is not None:
            self._same_ids(generation)
        self._warm_up("execute", lambda: load_kernels(shard.out_edges))
        logs = epoch is not None and self.ballot.log is not None
        more: Value = {} if n_vertices is None else {"n_vertices": n_vertices, "keys": keys}
        record = self._record("batch", {**logged(**share), **more}) if logs else None
        with self.ballot.attempt(record), shard.working():
            growth = None if n_vertices is None else Growth(shard, n_vertices)
            try:
                change = Execution(shard, streams(shard, first=first, **share), growth, room)
            except BaseException:
                if growth is not None:
                    growth.undo()
                raise
            if epoch is None:
                change.prepare()
            else:
                self._decide(change)
            value = {"epoch": shard.epoch, **answered(shard, change.answers)}
            return {**value, **{name: getattr(change.updates.counts, name) for name in COUNTS}}

    def ingest(
        self,
        epoch: int,
        sources: list[Value],
        size: int,
        first: int = 0,
        generation: int | None = None,
        room: int = 1 << 62,
    ) -> Value:
        """Apply batches that the ranks read themselves, one a step, from `epoch` on; see `mgraph.worker.ingest`.

        The source is one of `size` ranks, of which this rank reads the shares `sources`, from step `first` on.
        `generation` and `room` are as in `execute`.
        """
        shard = self._check_epoch(epoch)
        if generation is not None:
            self._same_ids(generation)
        opened = [open_source(source, source["rank"], size, shard.device, self._host.held) for source in sources]
        reads = [
            one.read if one.function is None else partial(self._read_busy, one.function, one.read) for one in opened
        ]
        done = ingest(shard, self.ballot, joined(reads, shard.device), room, first)
        return {**done, "left_out": sorted(set[str]().union(*(one.left_out for one in opened)))}

    def _read_busy(self, function: str, read: Reader, step: int) -> Any:
        """Read a step with the user's function, and name it in `busy`: while it holds the GIL, no beats are sent."""
        self.busy = f"{function}() in step {step} of an ingest"
        try:
            return read(step)
        finally:
            self.busy = None

    def delete_vertices(self, epoch: int, ids: np.ndarray) -> Value:
        """Delete every edge to or from these users' ids, as `epoch`."""
        shard = self._check_epoch(epoch)
        with self.ballot.attempt(self._record("delete_vertices", {"ids": ids})), shard.working():
            return self._commit_batch(incident_runs(shard, ids))

    def remove_vertices(self, epoch: int, ids: np.ndarray) -> Value:
        """Remove users' ids, ascending and different, and every edge to or from them, as `epoch`. Later ids move up."""
        shard = self._check_epoch(epoch)
        with self.ballot.attempt(self._record("remove_vertices", {"ids": ids})), shard.working():
            change = Removal(shard, ids)
            return {**self._decide(change), **dict.fromkeys(COUNTS, 0), "deleted": change.deleted}

    def add_vertices(self, epoch: int, n_vertices: int, keys: np.ndarray | None = None) -> Value:
        """Grow the graph to `n_vertices` vertices, as `epoch`; `keys` as of `update`."""
        shard = self._check_epoch(epoch)
        with self.ballot.attempt(self._record("add_vertices", {"n_vertices": n_vertices, "keys": keys})):
            return self._decide(VerticesChange(shard, n_vertices))

    def rebalance(self) -> Value:
        """Move the range boundaries so that the ranks have about equal work."""
        return self._decide(Move(self.shard, by_work))

    def reorder(self) -> Value:
        """Give the vertices new internal ids, by descending degree."""
        return self._decide(Move(self.shard, by_degree))

    def order(self, wanted: bool) -> Value:
        """The internal id of each user's id, if it is wanted from this rank."""
        shard = self.shard
        return {"order": shard.device.fetch(shard.order)} if wanted and shard.order is not None else {}

    def resolve(self, changes: int) -> None:
        """Finish a change whose vote was interrupted on this rank; see `Ballot.resolve`."""
        self.ballot.resolve(changes)

    def _check_epoch(self, epoch: int) -> Shard:
        shard = self.shard
        if epoch != shard.epoch + 1:
            raise MgraphError(f"{shard}: a change came as epoch {epoch} instead of {shard.epoch + 1}")
        return shard

    def _record(self, kind: str, columns: Value) -> Record | None:
        """The record of a change for the log; None without a log, since a record keeps the columns in memory."""
        return None if self.ballot.log is None else Record.of(kind, columns)

    def _commit_batch(self, runs: list[Run], growth: Growth | None = None) -> Value:
        change = BatchChange(self.shard, runs, growth)
        return {**self._decide(change), **{name: getattr(change.counts, name) for name in COUNTS}}

    def _decide(self, change: Change) -> Value:
        self.ballot.decide(change)
        return {"epoch": self.shard.epoch}

    # ---- the store ---------------------------------------------------------------------------------------------------

    def survey(self, path: str, epoch: int | None, repair: bool, own: bool) -> Value:
        """What a store holds, for a graph that is to be made from it, and is to write it if `own`; from rank 0."""
        self._storage = Storage(path, self.rank, self._host.name)
        return self._storage.survey(epoch, repair, own)

    def create_store(self, path: str, kind: Value, **how: Any) -> None:
        """Make a store for this graph, which has no epoch yet, and log what changes from now on."""
        self._storage = Storage(path, self.rank, self._host.name)
        with together(self.shard):
            self._storage.create(kind)
        self._start_log(**how)

    def restore(self, epoch: int, repair: bool, how: Value | None, read_only: bool, after: int | None = None) -> Value:
        """Make the surveyed epoch again in this empty shard; then log what changes, where `how` says how.

        The answer has the counts of each epoch behind `after`: int64[4 * k], in the order of `COUNTS`.
        """
        assert self._storage is not None, "the client asked for no survey"
        found = self._storage.found(epoch, repair)
        counts = restore(self.shard, self.ballot, self._storage.store, found, after)
        self._storage.read_keys(found)
        if how is not None:
            self._start_log(**how)
        elif read_only:
            self.ballot.log = ReadOnly(epoch)
        return {"epoch": self.shard.epoch, "counts": counts}

    def begin_at(self, epoch: int) -> None:
        """Count on from `epoch`, in a graph without a store that holds what another one held then."""
        assert self.ballot.log is None, "epochs of a store are its own"
        self.shard.epoch = epoch

    def keys(self) -> Value:
        """The keys of the vertices that were restored, from rank 0, as `mgraph.keys.Names.packed` has them."""
        assert self._storage is not None
        names = self._storage.keys.names
        return {} if names is None else {"keys": names.packed()}

    def _start_log(self, **how: Any) -> None:
        assert self._storage is not None
        self.ballot.log = self._storage.start(self.shard, How(**how), self._attempt, self._aborted)

    def _stored(self) -> Storage:
        """The store of this graph; `InvalidOption` if it has none."""
        if self._storage is None or self._storage.log is None:
            raise InvalidOption(f"graph {self.graph} has no store")
        return self._storage

    def snapshot(self) -> None:
        """Begin a snapshot of this rank's edges."""
        self._stored().snapshot(self.shard)

    def save(self, path: str, kind: Value, keys: np.ndarray | None = None) -> None:
        """Begin to write this rank's edges to a folder of their own, and on rank 0 the vertices' keys."""
        if self._storage is None:
            self._storage = Storage(path, self.rank, self._host.name)
        self._storage.save(self.shard, path, kind, keys)

    def writing(self) -> Value:
        """Whether a snapshot is being written, and why the last one was not."""
        return {"busy": False, "problem": None} if self._storage is None else self._storage.writing

    def store(self) -> Value:
        """How far this rank's log is; see `Storage.report`."""
        return {} if self._storage is None else self._storage.report()

    # ---- reads -------------------------------------------------------------------------------------------------------

    def _owner(self, starts: list[int], generation: int) -> Shard:
        """The shard; `Stale` if the ids were sent by ranges or by an order that have changed since."""
        shard = self._same_ids(generation)
        if tuple(starts) != shard.partition.starts:
            raise Stale(f"{shard}: the ranges of the ranks have changed")
        return shard

    def _same_ids(self, generation: int) -> Shard:
        shard = self.shard
        if generation != shard.generation:
            raise Stale(f"{shard}: the order of the vertices has changed")
        return shard

    def has_edges(self, starts: list[int], generation: int, src: np.ndarray, dst: np.ndarray) -> Value:
        """Whether each edge exists; given by internal ids, with sources that this rank owns."""
        return {"found": self._owner(starts, generation).has_edges(src, dst)}

    def weights(self, starts: list[int], generation: int, src: np.ndarray, dst: np.ndarray) -> Value:
        """The weight of each edge, NaN where there is none; given as for `has_edges`."""
        return {"weights": self._owner(starts, generation).weights(src, dst)}

    def degrees(self, starts: list[int], generation: int, ids: np.ndarray, direction: str = "out") -> Value:
        """The degrees of internal ids that this rank owns."""
        return {"degrees": self._owner(starts, generation).degrees(ids, direction)}

    def neighbors(self, starts: list[int], generation: int, ids: np.ndarray | None, direction: str = "out") -> Value:
        """The rows of internal ids that this rank owns; of all of them for None."""
        offsets, dst, weight = self._owner(starts, generation).neighbors(ids, direction)
        return {"offsets": offsets, "dst": dst, "weight": weight}

    def fingerprint(self, hashes: np.ndarray | None = None) -> Value:
        """The hash of this rank's arcs, by users' ids, or by hashes of the keys that these have."""
        return {"hash": fingerprint(self.shard, hashes)}

    # ---- algorithms --------------------------------------------------------------------------------------------------

    def run(self, name: str, result: str, generation: int, args: Value, data: dict[str, Value] | None = None) -> Value:
        """Run an algorithm and store its columns under the id `result`. `data` has arguments with a number a vertex."""
        shard = self._same_ids(generation)
        self._warm_up(name, lambda: ALGORITHMS[name].warm(shard))
        for argument, values in (data or {}).items():
            args = {**args, argument: self._own_values(generation, **values)}
        return self._keep(result, *ALGORITHMS[name].run(shard, **args))

    def _keep(self, result: str, columns: dict[str, Any], info: Value) -> Value:
        """Store what a program returned; the client's answer."""
        shard = self.shard
        shard.device.synchronize()
        shard.results[result] = Result(columns, shard.lo)
        dtypes = {column: str(values.dtype) for column, values in columns.items()}
        return {"info": info, "dtypes": dtypes, "epoch": shard.epoch, "lo": shard.lo, "hi": shard.hi}

    def _warm_up(self, name: str, compile: Callable[[], object]) -> None:
        """Compile an algorithm, or what else has a name, before its first run on this shard."""
        if name not in self._warm:
            logger.info("graph %s, rank %d: compiling %s", self.graph, self.rank, name)
            compile()
            self._warm.add(name)

    def _own_values(
        self,
        generation: int,
        starts: list[int],
        result: str | None = None,
        column: str | None = None,
        moved: bool = False,
        values: Any = None,
    ) -> Any:
        """The values of the own vertices: `values`, or those of an earlier result; `moved` if that has other ranges."""
        shard = self._owner(starts, generation)
        if result is None:
            return shard.device.host.asarray(values) if isinstance(values, np.ndarray) else values
        held = shard.result(result).column(column)
        if not moved:
            return held
        return shard.device.concatenate(shard.exchange.allgather(held))[shard.lo : shard.hi]

    def maintain(
        self, live: str, name: str, result: str, generation: int, args: Value, data: dict[str, Value] | None = None
    ) -> Value:
        """As `run` for the maintained result with the id `live`, which is made or brought up to date."""
        shard = self._same_ids(generation)
        self._warm_up(name, lambda: ALGORITHMS[name].warm(shard))
        for argument, values in (data or {}).items():
            args = {**args, argument: self._own_values(generation, **values)}
        took = follow(shard, live, ALGORITHMS[name], args)
        made = shard.lives[live].made
        assert made is not None
        return {**self._keep(result, *made.columns()), "took": took}

    def fetch(self, result: str, column: str | None, ids: np.ndarray | None = None) -> Value:
        """The values of a result on this rank: of a column by its name, or of the first column for None.

        Of all vertices, or of these internal ids, which were in the range of the rank when the result was computed.
        """
        device, held = self.shard.device, self.shard.result(result)
        values = held.column(column)
        if ids is not None:
            places = device.asarray(ids) - np.uint32(held.lo)
            rows = values if values.ndim > 1 else values[None]
            return {
                "values": np.stack([device.fetch(device.gather(row, places)) for row in rows]).reshape(
                    *values.shape[:-1], len(ids)
                )
            }
        return {"values": device.fetch(values.reshape(-1)).reshape(values.shape)}

    def combine(self, result: str, operation: str, like: str, operands: list[Value]) -> Value:
        """A column from others, elementwise, stored under the id `result`."""
        made = combine(self.shard, operation, like, operands)
        self.shard.device.synchronize()
        self.shard.results[result] = made
        return {"dtype": str(made.column(None).dtype)}

    def reduced(self, result: str, column: str, kind: str) -> Value:
        """The sums, or the like, of parts of a column on this rank."""
        return {"numbers": reduced(self.shard.device, self.shard.result(result).column(column), kind)}

    def top(self, result: str, k: int) -> Value:
        """The `k` largest of this rank's values of a result, and their internal ids."""
        ids, values = self.shard.top(result, k)
        return {"ids": ids, "values": values}


#: the calls that a client may make, by name
_CALLS: dict[str, Callable[..., Value | None]] = {
    call.__name__: call
    for call in (
        *(Calls.inspect, Calls.offer_memory, Calls.map_memory, Calls.reserve, Calls.create),
        *(Calls.open_exchange, Calls.connect_exchange),
        *(Calls.update, Calls.execute, Calls.ingest),
        *(Calls.delete_vertices, Calls.add_vertices, Calls.remove_vertices),
        *(Calls.survey, Calls.create_store, Calls.restore, Calls.keys, Calls.store, Calls.begin_at),
        *(Calls.snapshot, Calls.save, Calls.writing),
        *(Calls.rebalance, Calls.reorder, Calls.order, Calls.resolve),
        *(Calls.has_edges, Calls.weights, Calls.degrees, Calls.neighbors, Calls.fingerprint),
        *(Calls.run, Calls.maintain, Calls.fetch, Calls.top, Calls.combine, Calls.reduced),
    )
}
