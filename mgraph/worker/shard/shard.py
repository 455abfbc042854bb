"""One worker's part of one graph: a range of rows in a local structure, and what algorithms see of it.

A shard knows nothing of Dask: its exchange, its device and its limits come in by the constructor. One thread uses it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import GraphClosed, MgraphError
from mgraph.exchange import Exchange
from mgraph.kernels import load
from mgraph.partition import Partition
from mgraph.structures import Csr, Run, Structure, create
from mgraph.structures.sort import load_sorts
from mgraph.worker.shard.change_log import ChangeLog
from mgraph.worker.shard.edge_expiry import Clock, EdgeExpiry
from mgraph.worker.shard.mapped_reads import MOST, MappedReads
from mgraph.worker.shard.prefetch import Prefetch
from mgraph.worker.shard.results import MaintainedState, Result

__all__ = ["Shard", "ShardSpec", "Unconnected"]


class Unconnected(Exchange):
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


@dataclass(frozen=True)
class ShardSpec:
    """What a shard is to be; the same on every rank but for `rank`.

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
        One of `mgraph.structures.combine.COMBINES`: what becomes of the weight of an edge that is inserted again.
    generation : int
        The number of its first order.
    times : str or None
        The dtype of the edges' times, as `mgraph.tables.times.check_times` has it; None in a graph without times.
    window : int or None
        How much earlier than the largest time an edge may be, in the unit of times.
    window_edges : int or None
        How many edges there may be; the oldest leave.
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


class Shard:
    """The rows ``lo .. hi - 1`` of a graph.

    Parameters
    ----------
    spec : ShardSpec
    exchange : Exchange
        The way to the other ranks. It is replaced after an aborted call.
    device : Device
        The device that holds everything, with the budget of its memory.

    Attributes
    ----------
    partition : Partition
        The ranges of all ranks, as they are now.
    size, n_vertices : int
        How many ranks; the vertices of the whole graph.
    lo, hi : int
        The first internal id that this shard owns, and one past the last.
    out_edges : Structure
        Rows are local sources ``src - lo``, slots hold global destinations.
    in_edges : Structure or None
        Rows are local destinations, slots hold global sources; the same object as `out_edges` for undirected graphs,
        None for directed ones without `reverse`.
    structures : list of Structure
        The one or two that hold edges, each once.
    epoch : int
        Changes of content committed: batches, and vertices added.
    changes : int
        Changes of any kind committed: those of content, moves of the range boundaries, new orders.
    operations : int
        The sum, over the batches committed so far, of the different edges that each of them named.
    generation : int
        How often the order of the vertices was renewed.
    waited : float
        Seconds spent in calls to the other ranks, ever.
    seconds : float
        What the last batch took, without waiting for other ranks.
    stuck_words, stuck_sums : int64[1], Array
        1 once a sum of weights was so large that a weight did not change it, in host memory; kernels write the array.
    num_edges : int
        Edges that this shard counts: its arcs; in an undirected graph those with ``src <= dst``.
    results : dict of str to Result
        What algorithms left here, by id; later changes of the graph or of the ranges do not touch it.
    change_log : ChangeLog
        What the last batches have changed, while results follow the graph.
    clock : Clock or None
        The times of the arcs; None in a graph without times.
    maintained : dict of str to MaintainedState
        Maintained results by id.
    stream_ahead : cupy.cuda.Stream or None
        On a GPU: where parts are read and sorted while the shard's thread applies those before; one for all ingests.
    prefetch : Prefetch or None
        On a GPU: columns that were copied there while the call before was running.
    stream_route : cupy.cuda.Stream or None
        On a GPU: where a step of an ingest is exchanged and merged while the one before is committed.
    """

    def __init__(self, spec: ShardSpec, exchange: Exchange, device: Device) -> None:
        self.spec, self.exchange, self.device = spec, exchange, device
        self.rank, self.directed = spec.rank, spec.directed
        self.take_ranges(spec.partition)
        self.order = None if spec.order is None else device.asarray(spec.order, np.uint32)
        self._names: tuple[Array, Array] | None = None
        self._by_key: tuple[Array, Array] | None = None
        self.epoch = self.num_edges = self.changes = self.operations = 0
        self.generation = spec.generation
        self.waited = self.seconds = 0.0
        self.stuck_words, self.stuck_sums = device.mailbox(1)
        self.results: dict[str, Result] = {}
        self.change_log = ChangeLog(device)
        self.maintained: dict[str, MaintainedState] = {}
        device.use()
        self._mapped_reads = MappedReads(device) if device.kind == "cuda" else None
        self.stream_ahead = self.stream_route = self.prefetch = None
        if device.kind == "cuda":
            # before the commit's kernels: the array library's sort holds the interpreter until it is done
            self.stream_ahead, self.stream_route = (
                device.xp.cuda.Stream(non_blocking=True, priority=-1) for _ in range(2)
            )
            self.prefetch = Prefetch(device)
        in_edges = self.new_structure(self.hi - self.lo) if self.directed and spec.reverse else None
        self.hold(self.new_structure(self.hi - self.lo), in_edges)
        self.clock = self._new_clock()
        self._warm()

    def new_structure(self, n_rows: int, n_vertices: int | None = None) -> Structure:
        """An empty structure of the graph's kind, for as many vertices as there are or for `n_vertices`."""
        spec, n = self.spec, self.n_vertices if n_vertices is None else n_vertices
        return create(spec.structure, n, device=self.device, weighted=spec.weighted, n_rows=n_rows)

    def hold(self, out_edges: Structure, in_edges: Structure | None) -> None:
        """Have these structures from now on."""
        self.out_edges: Structure = out_edges
        self.in_edges = in_edges if self.directed else out_edges
        self.structures = [out_edges] if self.in_edges in (None, out_edges) else [out_edges, self.in_edges]

    def _new_clock(self) -> Clock | None:
        spec = self.spec
        if spec.times is None:
            return None
        window = spec.window, spec.combine != "last", spec.window_edges
        return Clock(self.device, len(self.structures), spec.directed, *window)

    def _warm(self) -> None:
        """Compile what batches and reads run, so that the first batch is as fast as the others."""
        none = self.device.empty(0, np.uint64)
        load_sorts(self.device)
        for file in ("kernels/arcs.cuh", "kernels/merge.cuh") if self.size > 1 else ("kernels/arcs.cuh",):
            load(self.device, file)
        self.out_edges.discard(self.out_edges.prepare(Run(none)))
        self.out_edges.has_edges(none.astype(np.uint32), none.astype(np.uint32))

    # ---- where -------------------------------------------------------------------------------------------------------

    def take_ranges(self, partition: Partition) -> None:
        """Have the range that is this rank's in a partition from now on."""
        self.partition, self.size, self.n_vertices = partition, partition.size, partition.n_vertices
        self.lo, self.hi = partition.range(self.rank)

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that structures and results hold, with what results that follow the graph need."""
        held = 0 if self.clock is None else self.clock.nbytes
        for group in (self.structures, self.results.values(), self.maintained.values()):
            for one in group:
                held += one.nbytes
        return held if self.change_log.first is None else held + self.change_log.nbytes

    def __str__(self) -> str:
        return f"graph {self.spec.graph}, epoch {self.epoch}, rank {self.rank}"

    # ---- ids ---------------------------------------------------------------------------------------------------------

    def here(self, column: Any) -> Any:
        """A column of a batch on the device, as kernels need it: what a comm delivers may lie at any address.

        None, or one number for all, as it is.
        """
        if column is None or isinstance(column, int):
            return column
        ahead = None if self.prefetch is None else self.prefetch.find(column)
        return self.device.asarray(column) if ahead is None else ahead

    def internal(self, ids: Any) -> Array:
        """Users' ids as internal ids on the device; O(n)."""
        here = self.here(ids)
        return here if self.order is None else self.device.gather(self.order, here)

    @property
    def names(self) -> Array:
        """The user's id of each internal id, uint32[n_vertices]; None if they are the same. O(n) after a new order."""
        if self.order is None:
            self._names = None
        elif self._names is None or self._names[0] is not self.order:
            names = self.device.empty(self.n_vertices, np.uint32)
            self.device.scatter(names, self.order, self.device.arange(0, self.n_vertices, np.uint32))
            self._names = self.order, names
        return None if self._names is None else self._names[1]

    @property
    def by_name(self) -> Array:
        """See `mgraph.algorithms.algorithm.Shard`."""
        return self.order if self._by_key is None else self._by_key[1]

    @contextmanager
    def named_by(self, by_key: np.ndarray | None) -> Iterator[None]:
        """Meanwhile users call the vertices by keys; these are their ids in the order of the keys. None: by their ids.

        8 bytes a vertex of the graph.
        """
        if by_key is not None:
            ids = self.device.asarray(by_key, np.uint32)
            self._by_key = ids, self.internal(ids)
        try:
            yield
        finally:
            self._by_key = None

    def ids_of_labels(self, labels: Array) -> Array:
        """Labels, which are places in `by_name`, as users' ids: int64[n]; -1 stays."""
        if self._by_key is None:
            return labels
        ids = self.device.gather(self._by_key[0], self.device.xp.maximum(labels, 0)).astype(np.int64)
        ids[labels < 0] = -1
        return ids

    # ---- time --------------------------------------------------------------------------------------------------------

    def waiting(self) -> AbstractContextManager[None]:
        """Count the time of a call to the other ranks as waiting, so that the rest is this rank's own work."""
        return _Waiting(self)

    def working(self) -> AbstractContextManager[None]:
        """Note how long a batch takes this rank, without its waiting for others."""
        return _Working(self)

    # ---- times of edges ----------------------------------------------------------------------------------------------

    def admit(self, runs: list[Run]) -> tuple[list[Run], EdgeExpiry | None]:
        """The runs of this rank's share of a batch without what comes too late, and how far it moves the window.

        None in a graph without times. With a window one read-back, and one small exchange with the other ranks.
        """
        if self.clock is None:
            return runs, None
        if self.clock.window is None:
            return runs, self.clock.now()
        with self.waiting():
            mine = np.array([self.clock.largest(runs[0])], np.int64)
            latest = int(self.exchange.allreduce(mine, "max")[0])
        return self.clock.admit(runs, latest)

    # ---- reads of rows that this shard owns --------------------------------------------------------------------------

    def _rows(self, ids: Any) -> Array:
        ids = self.device.asarray(ids)
        if not self.lo:
            return ids
        return self.device.xp.subtract(ids, np.uint32(self.lo), out=self.device.empty(len(ids), np.uint32))

    def has_edges(self, src: Any, dst: Any) -> np.ndarray:
        """Whether each edge is there, bool[n]; internal ids, the sources owned by this shard."""
        ask = self.out_edges.has_edges
        if self._mapped_reads is not None and len(src) <= MOST:
            return self._mapped_reads.ask(ask, np.bool_, self.lo, src, dst)
        found = ask(self._rows(src), self.device.asarray(dst), checked=True)
        return found if type(found) is np.ndarray else self.device.fetch(found)

    def weights(self, src: Any, dst: Any) -> np.ndarray:
        """The weight of each edge, float32[n], NaN where there is none; ids as for `has_edges`."""
        ask = self.out_edges.find_weights
        if self._mapped_reads is not None and len(src) <= MOST:
            return self._mapped_reads.ask(ask, np.float32, self.lo, src, dst)
        return self.device.fetch(ask(self._rows(src), self.device.asarray(dst), checked=True))

    def degrees(self, ids: Any, direction: str) -> np.ndarray:
        """Degrees, uint32[n], of internal ids that this shard owns; `direction` "in" where it keeps in-edges."""
        ask = self._edges(direction).degrees
        if self._mapped_reads is not None and len(ids) <= MOST:
            return self._mapped_reads.ask(ask, np.uint32, self.lo, ids)
        return self.device.fetch(ask(self._rows(ids), checked=True))

    def neighbors(self, ids: Any, direction: str, time: bool = False) -> dict[str, np.ndarray | None]:
        """Offsets, destinations, weights and with `time` times of the rows of ids that this shard owns; None: of all.

        Ids are internal ones. Each array by the name that it has in `Csr`.
        """
        edges, device = self._edges(direction), self.device
        rows = None if ids is None else self._rows(ids)
        csr = edges.to_csr() if rows is None else edges.neighbors(rows, checked=True)
        found = {"offsets": csr.offsets, "dst": csr.dst, "weight": csr.weight}
        if time:
            found["time"] = self.times_of(csr, rows, direction)
        return {name: None if array is None else device.fetch(array) for name, array in found.items()}

    def times_of(self, csr: Csr, rows: Array, direction: str) -> Array:
        """The time of each arc of some rows, or of all for None: int64[m]."""
        assert self.clock is not None, "the client asks for times only where there are some"
        xp, n = self.device.xp, len(csr.dst)
        with self.device.taking(24 * n, f"the keys of {n} arcs"):
            rows = xp.arange(len(csr.offsets) - 1) if rows is None else rows
            which = xp.searchsorted(csr.offsets, xp.arange(n), side="right") - 1
            keys = rows[which].astype(np.uint64) << np.uint64(32) | csr.dst
        return self.clock.times[self.structures.index(self._edges(direction))].find(keys)

    def _edges(self, direction: str) -> Structure:
        edges = self.out_edges if direction == "out" else self.in_edges
        assert edges is not None, "the client asks for in-edges only where they are kept"
        return edges

    # ---- results -----------------------------------------------------------------------------------------------------

    def result(self, name: str) -> Result:
        """A result by its id; `GraphClosed` where it was freed."""
        if name not in self.results:
            raise GraphClosed(f"{self}: result {name} was freed")
        return self.results[name]

    def top(self, name: str, column: str | None, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the internal ids and values of the `k` largest of a result's column here; see `Result.top`."""
        return self.result(name).top(self.device, column, k)


class _Waiting:  # a generator would take three times as long, and a small batch waits and works in 100 us
    def __init__(self, shard: Shard) -> None:
        self.shard = shard

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.shard.waited += time.perf_counter() - self.began


class _Working(_Waiting):
    def __enter__(self) -> None:
        self.waited, self.began = self.shard.waited, time.perf_counter()

    def __exit__(self, *_: object) -> None:
        shard = self.shard
        shard.seconds = time.perf_counter() - self.began - (shard.waited - self.waited)
