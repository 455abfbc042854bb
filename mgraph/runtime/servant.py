"""The calls that a coordinator can make on a shard, by name; everything here runs in the shard's thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from mgraph.device import Array, Device, gpu_count
from mgraph.errors import InvalidOption, MgraphError
from mgraph.exchange import Exchange, nccl_installed, ucx_installed
from mgraph.partition import Partition
from mgraph.runtime import rebalance, reorder, update
from mgraph.runtime.fingerprint import fingerprint
from mgraph.runtime.ingest import COUNTS, ingest
from mgraph.runtime.memory import WorkerDevice
from mgraph.runtime.protocol import Moved
from mgraph.runtime.shard import Result, Shard, ShardSpec, aligned
from mgraph.runtime.sources import open_source
from mgraph.structures import Run

__all__ = ["ExchangeMaker", "Program", "ShardServant"]

Answer = dict[str, Any]
Program = Callable[..., tuple[Any, dict[str, Any]]]

#: ``make(name, rank, size, attempt, device, aborted)`` opens an exchange
ExchangeMaker = Callable[[str, int, int, int, Device, Callable[[], bool]], Exchange]


class ShardServant:
    """Serves one session: makes the shard, runs calls on it, and replaces its exchange when an attempt was aborted.

    Parameters
    ----------
    graph, rank, size
        Who this is.
    aborted : callable
        Polled by the exchange's waits.
    open_exchange : callable
        Makes exchanges; what it needs of the worker is bound in it.
    threads : int
        Host threads that kernels may use.
    memory_left : callable
        Bytes that the worker's process may still take.
    programs : mapping of str to callable
        The algorithms: ``program(shard, **arguments)`` gives an array, one entry an owned vertex, or a dict of such
        columns, and a dict of what else it says.
    warm : callable
        Compiles what the programs run on a shard.
    held : callable
        The Dask data of a key on this worker.

    Attributes
    ----------
    metrics : dict
        What the shard last said of itself, replaced as a whole: other threads may read it.
    """

    def __init__(
        self,
        graph: str,
        rank: int,
        size: int,
        aborted: Callable[[], bool],
        open_exchange: ExchangeMaker,
        threads: int,
        memory_left: Callable[[], int],
        programs: Mapping[str, Program],
        warm: Callable[[Shard], None],
        held: Callable[[str], Any],
    ) -> None:
        self.graph, self.rank, self.size = graph, rank, size
        self._aborted, self._open, self._threads, self._memory_left = aborted, open_exchange, threads, memory_left
        self._programs, self._warm, self._held = programs, warm, held
        self._exchange: Exchange | None = None
        self._exchange_name = ""
        self._device: WorkerDevice | None = None
        self._shard: Shard | None = None
        self._in_doubt: update.Prepared | rebalance.Moved | None = None
        self._broken: str | None = None
        self.metrics: Answer = {}

    # ---- what the shard's thread drives ------------------------------------------------------------------------------

    def call(self, method: str, attempt: int, args: Answer) -> Answer:
        """Run the call `method`; its answer, and the shard's state with it."""
        function = getattr(self, f"do_{method}", None)
        if function is None:
            raise MgraphError(f"graph {self.graph}, rank {self.rank}: no call {method!r}")
        if method == "open_exchange":
            args = {**args, "attempt": attempt}
        value = function(**args)
        self.metrics = self._state()
        return {**self.metrics, **(value or {})}

    def free(self, results: Iterable[str]) -> None:
        """Forget results."""
        if self._shard is not None:
            for name in results:
                self._shard.results.pop(name, None)

    def settle(self) -> Answer:
        """Destroy the exchange of the aborted attempt, whole, so that its buffers can be used again."""
        self._close_exchange()
        return self._state()

    def close(self) -> None:
        """Free everything: exchange first, then the shard."""
        self._close_exchange()
        self._discard(self._in_doubt)
        self._in_doubt = self._shard = None
        self.metrics = {}
        if self._device is not None and self._device.kind == "cuda":
            self._device.xp.get_default_memory_pool().free_all_blocks()

    def _close_exchange(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    def _state(self) -> Answer:
        shard = self._shard
        state: Answer = {"in_doubt": self._in_doubt is not None, "broken": self._broken}
        state["memory_left"] = self._memory_left()
        if shard is None:
            return {**state, "epoch": 0, "changes": 0, "generation": 0}
        state.update(epoch=shard.epoch, changes=shard.changes, edges=shard.num_edges, nbytes=shard.nbytes)
        state["generation"] = shard.generation
        state.update(lo=shard.lo, hi=shard.hi, arcs=sum(s.num_edges for s in shard.structures), seconds=shard.seconds)
        return state

    @property
    def _ready(self) -> Shard:
        if self._shard is None:
            raise MgraphError(f"graph {self.graph}, rank {self.rank}: no shard was made")
        return self._shard

    # ---- making and connecting ---------------------------------------------------------------------------------------

    def do_inspect(self) -> Answer:
        """What this worker has: GPUs, UCX, NCCL, and who it is."""
        return {"gpus": gpu_count(), "ucx": ucx_installed(), "nccl": nccl_installed(), "pid": os.getpid()}

    def do_create(
        self,
        device: str,
        exchange: str,
        starts: list[int],
        order: np.ndarray | None = None,
        reserve: int = 0,
        **spec: Any,
    ) -> Answer | None:
        """Make the shard, empty, on `device`, with `reserve` bytes of it; the exchange is opened later."""
        self._exchange_name = exchange
        made = Device.of(device)
        self._device = WorkerDevice(made.kind, made.index, self._threads, memory_left=self._memory_left)
        self._device.use()
        self._device.reserve(reserve)
        shape = ShardSpec(self.graph, self.rank, Partition(tuple(starts)), order=order, **spec)
        self._shard = Shard(shape, _Unconnected(), self._device)
        self._warm(self._shard)
        return None

    def do_open_exchange(self, attempt: int) -> Answer:
        """Open the exchange of an attempt; its address."""
        self._close_exchange()
        assert self._device is not None
        self._exchange = self._open(self._exchange_name, self.rank, self.size, attempt, self._device, self._aborted)
        return {"address": self._exchange.address}

    def do_connect_exchange(self, addresses: list[bytes]) -> None:
        """Reach the other ranks."""
        assert self._exchange is not None
        self._exchange.connect([bytes(address) for address in addresses])
        self._ready.exchange = self._exchange

    # ---- changes -----------------------------------------------------------------------------------------------------

    def do_update(self, epoch: int, **share: Any) -> Answer:
        """Take a share of a batch, which all ranks commit as `epoch`, or none."""
        shard = self._ready
        self._check_epoch(epoch)
        with update.working(shard):
            runs = update.share_runs(shard, **share)
            share.clear()
            return self._apply([update.route(shard, runs.pop(0)) for _ in range(len(runs))])

    def do_ingest(self, epoch: int, source: Answer) -> Answer:
        """Apply what the ranks read themselves, step after step, from `epoch` on; see `mgraph.runtime.ingest`."""
        shard = self._ready
        self._check_epoch(epoch)
        read = open_source(source, self.rank, self.size, shard.device, self._held)
        return ingest(shard, read, partial(self._apply, settle=False), self._settle_commit)

    def do_delete_vertices(self, epoch: int, ids: np.ndarray) -> Answer:
        """Delete every edge to or from users' ids, as `epoch`."""
        self._check_epoch(epoch)
        with update.working(self._ready):
            return self._apply(update.incident_runs(self._ready, ids))

    def do_add_vertices(self, n_vertices: int) -> None:
        """Have `n_vertices` in all, on every rank or on none; a rank that has them already does nothing."""
        shard, problem = self._ready, None
        try:
            shard.reserve_vertices(n_vertices)
        except Exception as error:  # told to the other ranks by the vote, then raised
            problem = error
            if any(s.n_vertices == n_vertices for s in shard.structures):
                self._broken = f"rank {self.rank}: one of two structures could not take {n_vertices} vertices: {error}"
        agreed = update.vote(shard, problem is None)
        if problem is not None:
            raise problem
        if not agreed:
            raise update.refused(shard)
        shard.add_vertices(n_vertices)

    def do_rebalance(self) -> None:
        """Move the range boundaries so that the ranks have about equal work; all ranks, or none."""
        shard = self._ready
        self._decide(rebalance.move(shard, rebalance.balanced(shard)), None)

    def do_reorder(self) -> None:
        """Give the vertices new internal ids, by descending degree; all ranks, or none."""
        self._decide(reorder.by_degree(self._ready), None)

    def do_order(self, wanted: bool) -> Answer:
        """The internal id of each user's id, from the rank that is asked for it."""
        shard = self._ready
        return {"order": shard.device.to_host(shard.order)} if wanted and shard.order is not None else {}

    def do_resolve(self, changes: int) -> None:
        """The outcome of a vote that this rank did not hear: of all ranks the most changed has made `changes`."""
        change, self._in_doubt = self._in_doubt, None
        if change is None:
            return
        if self._ready.changes < changes:
            self._commit(change)
            self._settle_commit()
        else:
            self._discard(change)

    def _check_epoch(self, epoch: int) -> None:
        if epoch != self._ready.epoch + 1:
            raise MgraphError(f"{self._ready}: a batch came as epoch {epoch}")

    def _apply(self, runs: list[Run], settle: bool = True) -> Answer:
        """Prepare, vote, commit; unless `settle`, the commit may still run on a GPU afterwards."""
        shard, prepared, problem = self._ready, None, None
        try:
            prepared = update.prepare(shard, runs)
        except Exception as error:  # told to the other ranks by the vote, then raised
            problem = error
        self._decide(prepared, problem, settle)
        assert prepared is not None
        return {name: getattr(prepared.counts, name) for name in COUNTS}

    def _decide(
        self, change: update.Prepared | rebalance.Moved | None, problem: Exception | None, settle: bool = True
    ) -> None:
        """Vote on a change that is prepared, or on the problem that prevented it; all commit, or all discard."""
        shard = self._ready
        try:
            agreed = update.vote(shard, change is not None)
        except BaseException:
            self._in_doubt = change  # others may have heard that all agree: the coordinator finds out
            raise
        if problem is not None:
            raise problem
        assert change is not None
        if not agreed:
            self._discard(change)
            raise update.refused(shard)
        self._commit(change)
        if settle:
            self._settle_commit()

    def _commit(self, change: update.Prepared | rebalance.Moved) -> None:
        with self._breaking():
            if isinstance(change, rebalance.Moved):
                rebalance.switch(self._ready, change)
            else:
                update.commit(self._ready, change)
            self.metrics = self._state()

    def _settle_commit(self) -> None:
        """Wait for what a commit has the device do: where that fails it has to fail here, once, not in a later call."""
        if self._broken is not None:
            return
        with self._breaking():
            self._ready.device.synchronize()

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """A failure in here leaves the ranks different: it is remembered."""
        try:
            yield
        except BaseException as error:
            self._broken = f"rank {self.rank}: the commit failed: {type(error).__name__}: {error}"
            raise

    @staticmethod
    def _discard(change: update.Prepared | rebalance.Moved | None) -> None:
        if isinstance(change, update.Prepared):
            update.discard(change)

    # ---- reads -------------------------------------------------------------------------------------------------------

    def _owner(self, starts: list[int], generation: int) -> Shard:
        """The shard; `Moved` where ids were dealt to the ranks by other ranges than those of now, or are others now."""
        shard = self._same_ids(generation)
        if tuple(starts) != shard.partition.starts:
            raise Moved(f"{shard}: the ranges of the ranks have changed")
        return shard

    def _same_ids(self, generation: int) -> Shard:
        shard = self._ready
        if generation != shard.generation:
            raise Moved(f"{shard}: the order of the vertices has changed")
        return shard

    def do_has_edges(self, starts: list[int], generation: int, src: np.ndarray, dst: np.ndarray) -> Answer:
        """Internal ids whose sources this rank owns."""
        return {"found": self._owner(starts, generation).has_edges(src, dst)}

    def do_degrees(self, starts: list[int], generation: int, ids: np.ndarray, direction: str = "out") -> Answer:
        """Internal ids that this rank owns."""
        return {"degrees": self._owner(starts, generation).degrees(ids, direction)}

    def do_neighbors(
        self, starts: list[int], generation: int, ids: np.ndarray | None, direction: str = "out"
    ) -> Answer:
        """Internal ids that this rank owns; all of them for None."""
        offsets, dst, weight = self._owner(starts, generation).neighbors(ids, direction)
        return {"offsets": offsets, "dst": dst, "weight": weight}

    def do_fingerprint(self) -> Answer:
        """The hash of the arcs here, in users' ids."""
        return {"hash": fingerprint(self._ready)}

    # ---- algorithms --------------------------------------------------------------------------------------------------

    def do_run(self, name: str, result: str, generation: int, args: Answer, start: Answer | None = None) -> Answer:
        """Run a program; its columns stay here under the id `result`. `start` is what `_start` makes an argument of."""
        if name not in self._programs:
            raise InvalidOption(f"algorithm {name!r} is none of {', '.join(sorted(self._programs))}")
        shard = self._same_ids(generation)
        if start is not None:
            args = {**args, "start": self._start(generation, **start)}
        values, info = self._programs[name](shard, **args)
        shard.device.synchronize()
        columns = dict(values) if isinstance(values, dict) else {"": values}
        main = columns.pop(next(iter(columns)))
        shard.results[result] = Result(main, shard.lo, columns)
        return {"info": info, "dtype": str(main.dtype)}

    def _start(
        self, generation: int, starts: list[int], result: str | None = None, moved: bool = False, values: Array = None
    ) -> Array:
        """Values of the own vertices to begin with: those given, or a result here, `moved` if by other ranges."""
        shard = self._owner(starts, generation)
        if result is None:
            return aligned(values)
        held = shard.result(result).values
        if not moved:
            return held
        return shard.device.xp.concatenate(shard.exchange.allgather(held))[shard.lo : shard.hi]

    def do_fetch(self, result: str, column: str | None) -> Answer:
        """The values of a result here: its main column for None, or another."""
        return {"values": self._ready.device.to_host(self._ready.result(result).column(column))}

    def do_top(self, result: str, k: int) -> Answer:
        """The largest values of a result here."""
        ids, values = self._ready.top(result, k)
        return {"ids": ids, "values": values}


class _Unconnected(Exchange):
    """Stands where a shard has no exchange yet."""

    name = "none"

    def __init__(self) -> None:
        super().__init__(0, 0, lambda: True)

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise MgraphError("this shard is not connected to the other ranks")

    address = property(_refuse)
    connect = alltoallv = allgather = allreduce = _refuse

    def close(self) -> None:
        """Nothing to close."""
