"""Shard: a worker's part of a graph, a range of rows in a local structure.

A shard knows nothing of Dask: its constructor gets exchange, device and limits. It is used by one thread.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import GraphClosed, MgraphError
from mgraph.exchange import Exchange
from mgraph.kernels import load
from mgraph.metrics import BATCH_SECONDS
from mgraph.parallel_copy import begin_upload, fetched
from mgraph.partition import Partition
from mgraph.structures import Csr, Run, Structure, create
from mgraph.structures.sort import load_sorts
from mgraph.worker.shard.change_log import ChangeLog
from mgraph.worker.shard.edge_expiry import Clock, EdgeExpiry
from mgraph.worker.shard.mapped_reads import MOST, MappedReads
from mgraph.worker.shard.prefetch import Prefetch
from mgraph.worker.shard.results import MaintainedState, Remembered, Result

__all__ = ["Shard", "ShardSpec", "Unconnected"]


class Unconnected(Exchange):
    """Placeholder of a shard without an exchange."""

    name = "none"

    def __init__(self) -> None:
        super().__init__(0, 0, lambda: True)

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise MgraphError("this shard is not connected to the other ranks")

    address = property(_refuse)
    connect = alltoallv = allgather = gather_values = _refuse

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class ShardSpec:
    """Specification of a shard; the same on every rank except for `rank`.

    Parameters
    ----------
    graph : str
        The graph's id, for messages.
    rank : int
    partition : Partition
        The ranges of internal ids of all ranks.
    structure : str
        A name of `mgraph.structures.names()`.
    directed, weighted, reverse : bool
        `reverse` keeps the in-edges of a directed graph too; an undirected graph is its own reverse.
    order : uint32[n] or None
        The internal id of each user's id; None for the identity.
    combine : str
        One of `mgraph.structures.combine.COMBINES`: how repeated insertions combine their weights.
    generation : int
        The number of its first order.
    times : str or None
        The dtype of the edges' times, from `mgraph.tables.times.check_times`; None in a graph without times.
    window : int or None
        The length of the window before the largest time, in the unit of times.
    window_edges : int or None
        The maximum number of edges; the oldest expire.
    copy_of : str
        The id of the graph that this one is a copy of; empty if it is no copy.
    """

    graph: str
    rank: int
    partition: Partition
    structure: str = "gpma+"
    directed: bool = True
    weighted: bool = False
    reverse: bool = False
    order: Array = None
    combine: str = "last"
    generation: int = 0
    times: str | None = None
    window: int | None = None
    window_edges: int | None = None
    copy_of: str = ""


class Shard:
    """Rows ``lo .. hi - 1`` of a graph.

    Parameters
    ----------
    spec : ShardSpec
    exchange : Exchange
        The connection to the other ranks. It is replaced after an aborted call.
    device : Device
        The device of all data, with the budget of its memory.

    Attributes
    ----------
    partition : Partition
        The current ranges of all ranks.
    size, n_vertices : int
        The number of ranks, and of vertices of the whole graph.
    lo, hi : int
        The first internal id that this shard owns, and one past the last.
    out_edges : Structure
        Rows are local sources ``src - lo``, slots hold global destinations.
    in_edges : Structure or None
        Rows are local destinations, slots hold global sources; the same object as `out_edges` for undirected graphs,
        None for directed ones without `reverse`.
    structures : list of Structure
        The distinct structures: one or two.
    epoch : int
        The number of committed changes of content: batches, and vertices added.
    changes : int
        The number of committed changes of any kind: of content, of range boundaries, and of the order.
    operations : int
        The sum, over all committed batches, of the distinct edges in each.
    generation : int
        The number of changes of the vertices' order.
    waited : float
        The total seconds of calls to the other ranks.
    seconds : float
        The time of the last batch, without waiting for other ranks.
    batches, batch_seconds, batch_times : int, float, list of int
        The number of batches, the sum of their times, and their histogram: the number of batches up to each of
        `BATCH_SECONDS` and above the one before, and at the end the number of longer ones. Restored batches count until
        `restart_counters`.
    stuck_words, stuck_sums : int64[1], Array
        1 once a sum of weights was so large that a weight did not change it, or made it infinite: in host memory, and
        as kernels write it.
    num_edges : int
        The edges that this shard counts: its arcs; in an undirected graph those with ``src <= dst``.
    results : dict of str to Result
        Results of algorithms, by id; later changes of the graph or of the ranges do not affect them.
    change_log : ChangeLog
        Recent changes, for maintained results.
    clock : Clock or None
        The times of the arcs; None in a graph without times.
    maintained : dict of str to MaintainedState
        Maintained results by id.
    remembered : Remembered
        What outlives them.
    stream_ahead : cupy.cuda.Stream or None
        On a GPU: for reading and sorting parts while the shard's thread applies earlier ones; common to all ingests.
    prefetch : Prefetch or None
        On a GPU: columns copied during the previous call.
    stream_route : cupy.cuda.Stream or None
        On a GPU: for exchange and merge of an ingest's step while the previous one is committed.
    """

    def __init__(self, spec: ShardSpec, exchange: Exchange, device: Device) -> None:
        self.spec, self.exchange, self.device = spec, exchange, device
        self.rank, self.directed = spec.rank, spec.directed
        self.take_ranges(spec.partition)
        self.order = None if spec.order is None else device.asarray(spec.order, np.uint32)
        self._names: tuple[Array, Array] | None = None
        self._by_key: tuple[Array, Array] | None = None
        # State.
        self.epoch = self.num_edges = self.changes = 0
        self.restart_counters()
        self.generation = spec.generation
        self.waited = self.seconds = 0.0
        self.stuck_words, self.stuck_sums = device.mailbox(1)
        self.results: dict[str, Result] = {}
        self.change_log = ChangeLog(device)
        self.maintained: dict[str, MaintainedState] = {}
        self.remembered = Remembered()

        # Streams and buffers of a GPU.
        device.use()
        self._mapped_reads = MappedReads(device) if device.kind == "cuda" else None
        self.stream_ahead = self.stream_route = self.prefetch = None
        if device.kind == "cuda":
            # Priority before the commit's kernels: the array library's sort blocks the interpreter until it is done.
            self.stream_ahead, self.stream_route = (device.stream_ahead() for _ in range(2))
            self.prefetch = Prefetch(device)

        # Structures and times.
        in_edges = self.new_structure(self.hi - self.lo) if self.directed and spec.reverse else None
        self.hold(self.new_structure(self.hi - self.lo), in_edges)
        self.clock = self._new_clock()
        self._warm()

    def new_structure(self, n_rows: int, n_vertices: int | None = None) -> Structure:
        """Return an empty structure of the graph's kind, with `n_vertices` or the present number."""
        spec, n = self.spec, self.n_vertices if n_vertices is None else n_vertices
        return create(spec.structure, n, device=self.device, weighted=spec.weighted, n_rows=n_rows)

    def hold(self, out_edges: Structure, in_edges: Structure | None) -> None:
        """Replace the structures."""
        self.out_edges: Structure = out_edges
        self.in_edges = in_edges if self.directed else out_edges
        self.structures = [out_edges] if self.in_edges in (None, out_edges) else [out_edges, self.in_edges]

    def _new_clock(self) -> Clock | None:
        """Return the clock of a graph with times."""
        spec = self.spec
        if spec.times is None:
            return None
        window = spec.window, spec.combine != "last", spec.window_edges
        return Clock(self.device, len(self.structures), spec.directed, *window)

    def _warm(self) -> None:
        """Compile the kernels of batches and reads, so that the first batch is as fast as later ones."""
        none = self.device.empty(0, np.uint64)
        load_sorts(self.device)
        for file in ("kernels/arcs.cuh", "structures/counts.cuh", *["kernels/merge.cuh"] * (self.size > 1)):
            load(self.device, file)
        self.out_edges.discard(self.out_edges.prepare(Run(none)))
        self.out_edges.has_edges(none.astype(np.uint32), none.astype(np.uint32))

    # ---- range -------------------------------------------------------------------------------------------------------

    def take_ranges(self, partition: Partition) -> None:
        """Adopt this rank's range in a partition."""
        self.partition, self.size, self.n_vertices = partition, partition.size, partition.n_vertices
        self.lo, self.hi = partition.range(self.rank)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory of structures, times, results, the change log and the exchange."""
        nbytes = self.exchange.world_nbytes + (0 if self.clock is None else self.clock.nbytes)
        for structure in self.structures:
            nbytes += structure.nbytes
        if self.results or self.maintained:
            # Copied in one step, since another thread may read the state of a graph in this process during a call.
            nbytes += sum([result.nbytes for result in list(self.results.values())])
            nbytes += sum([live.nbytes for live in list(self.maintained.values())])
        return nbytes if self.change_log.first is None else nbytes + self.change_log.nbytes

    def __str__(self) -> str:
        return f"graph {self.spec.graph}, epoch {self.epoch}, rank {self.rank}"

    # ---- ids ---------------------------------------------------------------------------------------------------------

    def here(self, column: Any) -> Any:
        """Return a batch's column on the device, aligned and contiguous; None and numbers unchanged.

        A page-locked column may still be on its way. A call's columns live until its handler has returned, and that
        waits for the device: the ballot after a commit, a read for its answer, and `working` after an error.
        """
        if column is None or isinstance(column, int):
            return column
        ahead = None if self.prefetch is None else self.prefetch.find(column)
        return begin_upload(self.device, column) if ahead is None else ahead

    def internal(self, ids: Any) -> Array:
        """Translate users' ids to internal ids on the device. O(n)."""
        here = self.here(ids)
        return here if self.order is None else self.device.gather(self.order, here)

    @property
    def names(self) -> Array:
        """User's id of each internal id, uint32[n_vertices]; None if equal. O(n) after a new order."""
        if self.order is None:
            self._names = None
        elif self._names is None or self._names[0] is not self.order:
            names = self.device.empty(self.n_vertices, np.uint32)
            self.device.scatter(names, self.order, self.device.arange(0, self.n_vertices, np.uint32))
            self._names = self.order, names
        return None if self._names is None else self._names[1]

    @property
    def by_name(self) -> Array:
        """The vertices in the order of users' names, as in `mgraph.algorithms.algorithm.Shard`."""
        return self.order if self._by_key is None else self._by_key[1]

    @contextmanager
    def named_by(self, by_key: np.ndarray | None) -> Iterator[None]:
        """Name the vertices by keys in a block: `by_key` has their ids in the order of the keys. None: by ids.

        Takes 8 bytes per vertex of the graph.
        """
        if by_key is not None:
            ids = self.device.asarray(by_key, np.uint32)
            self._by_key = ids, self.internal(ids)
        try:
            yield
        finally:
            self._by_key = None

    def ids_of_labels(self, labels: Array) -> Array:
        """Translate labels, positions in `by_name`, to users' ids: int64[n]; -1 stays."""
        if self._by_key is None:
            return labels
        ids = self.device.gather(self._by_key[0], self.device.xp.maximum(labels, 0)).astype(np.int64)
        ids[labels < 0] = -1
        return ids

    # ---- time --------------------------------------------------------------------------------------------------------

    def restart_counters(self) -> None:
        """Count operations and batches from 0 again."""
        self.operations, self.batches, self.batch_seconds = 0, 0, 0.0
        self.batch_times = [0] * (len(BATCH_SECONDS) + 1)

    def note_batch(self, seconds: float, batches: int = 1) -> None:
        """Count a committed batch and its time; or several, which took `seconds` together."""
        each = self.seconds = seconds / batches
        self.batches += batches
        self.batch_seconds += seconds
        self.batch_times[bisect_left(BATCH_SECONDS, each)] += batches

    def waiting(self) -> AbstractContextManager[None]:
        """Return a block whose time counts as waiting for other ranks."""
        return _Waiting(self)

    def working(self, batches: int = 1) -> AbstractContextManager[None]:
        """Return a block whose time, without waiting, is that of a batch, or of several."""
        return _Working(self, batches)

    # ---- times of edges ----------------------------------------------------------------------------------------------

    def admit(self, runs: list[Run]) -> tuple[list[Run], EdgeExpiry | None]:
        """Remove the late insertions of a batch's part, and return the move of the window.

        None in a graph without times. A window takes one read-back, and one small exchange with the other ranks.
        """
        if self.clock is None:
            return runs, None
        if self.clock.window is None:
            return runs, self.clock.now()
        with self.waiting():
            mine = np.array([self.clock.largest(runs[0])], np.int64)
            latest = int(self.exchange.allreduce(mine, "max")[0])
        return self.clock.admit(runs, latest)

    # ---- reads of own rows -------------------------------------------------------------------------------------------

    def _rows(self, ids: Any) -> Array:
        """Translate internal ids to local rows."""
        ids = self.here(ids)
        if not self.lo:
            return ids
        return self.device.xp.subtract(ids, np.uint32(self.lo), out=self.device.empty(len(ids), np.uint32))

    def has_edges(self, src: Any, dst: Any) -> np.ndarray:
        """Return True for each edge that exists, bool[n]; internal ids, with own sources."""
        edges = self.out_edges
        if len(src) == 1 and (single := edges.single) is not None and single.view is edges.view():
            return single.find(src.item() - self.lo, dst.item())
        ask = edges.has_edges
        if self._mapped_reads is not None and len(src) <= MOST:
            return self._mapped_reads.ask(ask, np.bool_, self.lo, src, dst)
        exists = ask(self._rows(src), self.here(dst), checked=True)
        return fetched(self.device, exists)

    def weights(self, src: Any, dst: Any) -> np.ndarray:
        """Return the weight of each edge, float32[n], NaN if it does not exist."""
        ask = self.out_edges.find_weights
        if self._mapped_reads is not None and len(src) <= MOST:
            return self._mapped_reads.ask(ask, np.float32, self.lo, src, dst)
        return fetched(self.device, ask(self._rows(src), self.here(dst), checked=True))

    def degrees(self, ids: Any, direction: str) -> np.ndarray:
        """Return the degrees, uint32[n], of own internal ids; `direction` "in" needs in-edges."""
        ask = self._edges(direction).degrees
        if self._mapped_reads is not None and len(ids) <= MOST:
            return self._mapped_reads.ask(ask, np.uint32, self.lo, ids)
        return fetched(self.device, ask(self._rows(ids), checked=True))

    def neighbors(self, ids: Any, direction: str, time: bool = False) -> dict[str, np.ndarray]:
        """Return offsets and destinations of own rows, all for None; weights if there are some; with `time` times.

        Ids are internal. Arrays are named as in `Csr`.
        """
        edges, device = self._edges(direction), self.device
        if self._mapped_reads is not None and ids is not None and len(ids) <= MOST and not time:
            answer = self._mapped_reads.rows(edges, self.lo, ids)
            if answer is not None:
                return answer
        rows = None if ids is None else self._rows(ids)
        csr = edges.to_csr() if rows is None else edges.neighbors(rows, checked=True)
        answer = {"offsets": fetched(device, csr.offsets), "dst": fetched(device, csr.dst)}
        if csr.weight is not None:
            answer["weight"] = fetched(device, csr.weight)
        if time:
            answer["time"] = fetched(device, self.times_of(csr, rows, direction))
        return answer

    def times_of(self, csr: Csr, rows: Array, direction: str) -> Array:
        """Return the time of each arc of some rows, None for all: int64[m]."""
        assert self.clock is not None, "the client asks for times only where there are some"
        xp, n = self.device.xp, len(csr.dst)
        with self.device.taking(24 * n, f"the keys of {n} arcs"):
            # The row of arc i is the last one whose offset is at most i.
            rows = xp.arange(len(csr.offsets) - 1) if rows is None else rows
            which = xp.searchsorted(csr.offsets, xp.arange(n), side="right") - 1
            keys = rows[which].astype(np.uint64) << np.uint64(32) | csr.dst
        return self.clock.times[self.structures.index(self._edges(direction))].find(keys)

    def _edges(self, direction: str) -> Structure:
        """Return the structure of a direction."""
        edges = self.out_edges if direction == "out" else self.in_edges
        assert edges is not None, "the client asks for in-edges only where they are kept"
        return edges

    # ---- results -----------------------------------------------------------------------------------------------------

    def result(self, name: str) -> Result:
        """Return a result by its id, or raise `GraphClosed`."""
        if name not in self.results:
            raise GraphClosed(f"{self}: result {name} was freed")
        return self.results[name]

    def top(self, name: str, column: str | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and values of the `k` largest of a result's column on this rank."""
        return self.result(name).top(self.device, column, k)


class _Waiting:  # a generator would take three times as long, and a small batch waits and works in 100 us
    def __init__(self, shard: Shard) -> None:
        self.shard = shard

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.shard.waited += time.perf_counter() - self.began


class _Working(_Waiting):
    def __init__(self, shard: Shard, batches: int) -> None:
        self.shard, self.batches = shard, batches

    def __enter__(self) -> None:
        self.waited, self.began = self.shard.waited, time.perf_counter()

    def __exit__(self, *error: object) -> None:
        shard = self.shard
        seconds = shard.seconds = time.perf_counter() - self.began - (shard.waited - self.waited)
        if error[0] is None:
            shard.note_batch(seconds, self.batches)
        else:
            # The caller's columns may be overwritten from now on.
            with suppress(Exception):  # the block's own error is raised
                shard.device.synchronize()
