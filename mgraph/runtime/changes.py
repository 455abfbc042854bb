"""How a graph is changed: the part of `DynamicGraph` that sends batches, and says and moves where edges lie."""

from __future__ import annotations

import threading
import time
import warnings
from typing import Any

import numpy as np
from distributed import Client

from mgraph.batch import EdgeBatch, as_ids, check_ids
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.partition import Partition
from mgraph.runtime import report
from mgraph.runtime.balance import Balance, balance_of
from mgraph.runtime.checks import check_count, check_whole
from mgraph.runtime.coordinator import Coordinator
from mgraph.runtime.door import Door
from mgraph.runtime.parts import as_parts
from mgraph.runtime.pipeline import Pipeline
from mgraph.runtime.report import UpdateReport
from mgraph.runtime.shares import check_batch, deal, lack_of_room

__all__ = ["Changes"]


class Changes:
    """Batches, vertices, ranges. `DynamicGraph` adds how a graph is made, read, analysed and shown."""

    device: str
    weighted: bool
    _client: Client
    _coordinator: Coordinator
    _door: Door  #: replaced under `_moving`, after the workers have changed
    _moving: threading.RLock
    _order_due: bool  #: whether the first batch is to be followed by a `reorder`

    @property
    def num_vertices(self) -> int:
        """How many vertices there are, deleted ones included: their ids stay."""
        return self._door.n_vertices

    @property
    def workers(self) -> tuple[str, ...]:
        """The addresses of the workers that hold it, in rank order."""
        return self._coordinator.addresses

    # ---- changes -----------------------------------------------------------------------------------------------------

    def update(self, batch: EdgeBatch) -> UpdateReport:
        """Apply a batch of insertions and deletions: all of it, on all workers, or none.

        Of repeats in the batch, the last wins. Inserting an edge that is there updates its weight; deleting one that is
        not there counts as missing. O(n log n) in all for n operations, divided over the workers.

        Raises
        ------
        UnknownVertex
            An id past `num_vertices`.
        InvalidBatch
            Weights for an unweighted graph.
        CapacityError
            A worker has no room for it. Nothing was changed.
        WorkerLost, GraphLost, GraphClosed
            The graph cannot be used.
        """
        self._check()
        shares = self._shares(batch)
        began = time.perf_counter()
        done = self._report(self._coordinator.call("update", shares=shares, connect=True, commits=True), began)
        self._order_first()
        return done

    def pipeline(self, max_bytes: int = 1 << 28) -> Pipeline:
        """Send batches while the workers apply those before: ``with g.pipeline() as p: p.update(batch)``.

        Epochs are committed in the order of the calls. Other calls wait until the batches in flight are committed.
        With ``order="degree"`` a first batch that goes this way is followed by no `reorder`: call it.
        See `mgraph.runtime.pipeline.Pipeline` for reports and errors.

        Parameters
        ----------
        max_bytes : int
            How much may be in flight: `update` waits while there is more. Each worker holds its share of it.
        """
        if check_whole(max_bytes, "max_bytes") < 1:
            raise InvalidOption(f"max_bytes is {max_bytes}; at least 1 is needed")
        self._check()
        return Pipeline(self._coordinator, self._shares, max_bytes)

    def ingest(self, source: Any, *, steps: int | None = None) -> list[UpdateReport]:
        """Apply batches that are born on the workers, step after step, in one call; each step is an epoch.

        Part i of a source goes to rank ``i % size`` in step ``i // size``; the stream's order is that of the parts.
        While a step is exchanged, merged and committed, each worker reads and sorts its next part.

        Parameters
        ----------
        source
            A part is one of: an `EdgeBatch`; a data frame or mapping with columns src, dst[, weight, op]; a tuple of
            such arrays. A source is one of:

            - a Dask DataFrame with these columns, or a tuple or mapping of one-dimensional Dask arrays or series, cut
              alike where Dask does not know their lengths; computed whole before the first step;
            - a future or delayed value of a part, or a list of them, moved to their ranks' workers where they lie
              elsewhere;
            - a list of .npz and Parquet files, which the workers read, each file as a part when its step comes;
            - a function ``f(rank, size, step)``, called on every worker, which returns a part, or None after its last.
              One with an argument `device` is given the shard's `mgraph.device.Device`. It runs in a thread of its own;
              Dask carries it, and what it imports must be installed on the workers. See `mgraph.runtime.rmat.Rmat`.
        steps : int, optional
            For functions: ends after as many steps.

        Returns
        -------
        list of UpdateReport
            One a step.

        Raises
        ------
        InvalidOption
            It is no source.
        InvalidBatch, UnknownVertex, ReadError, CapacityError
            A part cannot be read or applied. The step and the epoch are named; the epochs before it are committed.
        WorkerLost, GraphLost, GraphClosed
            The graph cannot be used.

        Notes
        -----
        No call of the client a step. Weights that only some parts of a step have are 1 in the others.
        """
        self._check()
        parts = as_parts(self._client, source, self.workers, steps, self._coordinator.check)
        shares = [{"source": share} for share in parts.shares]
        done = report.of_steps(self._coordinator.call("ingest", shares=shares, connect=True, commits=True))
        self._order_first()
        return done

    def insert(self, src: Any, dst: Any, weight: Any = None) -> UpdateReport:
        """Insert edges; see `update`, and `EdgeBatch` for what the arrays may be."""
        return self.update(EdgeBatch(src, dst, weight))

    def delete(self, src: Any, dst: Any) -> UpdateReport:
        """Delete edges; see `update`."""
        batch = EdgeBatch(src, dst)
        return self.update(EdgeBatch(batch.src, batch.dst, op=np.full(len(batch), -1, np.int8)))

    def add_vertices(self, n: int) -> range:
        """Add `n` vertices without edges; their ids. The last worker owns them. Not a batch: the epoch stays.

        Raises
        ------
        CapacityError
            More vertices than 32-bit ids allow, or than the last worker has room for.
        """
        n = check_count(n, "n")
        self._check()
        with self._moving:
            first = self.num_vertices
            total = check_count(first + n, "n_vertices")
            try:
                self._coordinator.call("add_vertices", {"n_vertices": total}, connect=True)
            except KeyboardInterrupt:  # some ranks may have them: finish, which changes nothing on those
                self._coordinator.call("add_vertices", {"n_vertices": total}, connect=True)
                raise
            finally:
                self._follow()
            return range(first, total)

    def delete_vertices(self, ids: Any) -> UpdateReport:
        """Delete every edge to and from `ids`, as one batch; the ids stay, with degree 0. O(n + m), a scan."""
        ids = self._ids(ids, "ids")
        began = time.perf_counter()
        return self._report(self._coordinator.call("delete_vertices", {"ids": ids}, connect=True, commits=True), began)

    def _shares(self, batch: EdgeBatch) -> list[dict[str, Any]]:
        """A batch, checked, as contiguous shares, one a worker."""
        check_batch(batch, self.num_vertices, self.weighted)
        one_process = all(address.startswith("inproc:") for address in self.workers)
        shares = deal(batch, len(self.workers), shared_gpu=one_process and self.device == "cuda")
        if not one_process and lack_of_room(shares, self._coordinator.states):
            self._coordinator.call("inspect")  # at the end of a call some of its memory may not have been free again
            if lack := lack_of_room(shares, self._coordinator.states):
                raise CapacityError(f"graph {self._coordinator.graph}: {lack}; nothing was sent")
        return shares

    def _report(self, answers: list[dict[str, Any]], began: float) -> UpdateReport:
        return report.of_batch(answers, time.perf_counter() - began)

    # ---- where it lies -----------------------------------------------------------------------------------------------

    def balance(self) -> Balance:
        """Vertices, edges, bytes and the last batch's time of each worker, as of the last call; asks no worker."""
        self._coordinator.check()
        return balance_of(self.workers, self._coordinator.states)

    def rebalance(self) -> Balance:
        """Move the boundaries of the workers' ranges so that they hold about equally many edges; the balance then.

        Rows travel between workers; ids, edges, epoch and results stay what they are. A result that lies on the workers
        keeps the ranges that it was computed with. All workers switch, or none.

        Raises
        ------
        CapacityError
            A worker has no room for its new part beside the old one. Nothing was changed.
        WorkerLost, GraphLost, GraphClosed
            The graph cannot be used.

        Notes
        -----
        O(n + m log m) in all, divided over the workers: each part is built anew from its sorted edges. Takes memory for
        the new part beside the old, and 16 bytes an arc while it moves.
        """
        return self._move("rebalance")

    def reorder(self) -> Balance:
        """Renew the internal order of the vertices: by descending degree, dealt to the workers in turn; the balance.

        Users' ids, edges, epoch and results stay what they are; the ranges become equally long. All workers switch, or
        none. Worth it after the graph has grown much: hubs' values then share cache lines again.

        Raises
        ------
        CapacityError
            A worker has no room for its new part beside the old one. Nothing was changed.
        WorkerLost, GraphLost, GraphClosed
            The graph cannot be used.

        Notes
        -----
        O(n log n + m log m), divided over the workers: each part is built anew from its renumbered, sorted edges. Takes
        memory for the new part beside the old, about 24 bytes an arc meanwhile and 40 a vertex of the whole graph; then
        4 a vertex on each worker and 8 here, where the order is fetched to.
        """
        with self._moving:
            self._order_due = False
            return self._move("reorder")

    def _move(self, call: str) -> Balance:
        """Let all workers switch, or none, and follow them here."""
        with self._moving:
            try:
                self._coordinator.call(call, connect=True)
            finally:  # after Ctrl-C it may have happened
                self._follow()
            return self.balance()

    def _check(self) -> None:
        """Raise what any call would raise now; and follow a move that Ctrl-C kept from being followed."""
        self._coordinator.check()
        if self._ranges() != self._door.partition:
            with self._moving:  # another thread may be about to
                self._follow()

    def _follow(self) -> None:
        """Take over the ranges and the order that the ranks last said they have."""
        generation, ranges = self._coordinator.states[0]["generation"], self._ranges()
        if generation != self._door.generation:
            wanted = [{"wanted": rank == 0} for rank in range(len(self.workers))]
            order = self._coordinator.call("order", shares=wanted)[0]["order"]
            self._door = Door(ranges, np.ascontiguousarray(order, np.uint32), generation)
        elif ranges != self._door.partition:
            self._door = self._door.moved(ranges)

    def _order_first(self) -> None:
        """After a batch: the order by degree that was asked for, once there are edges."""
        if self._order_due and any(state["edges"] for state in self._coordinator.states):
            try:
                self.reorder()
            except CapacityError as error:
                warnings.warn(f"the batch is committed; no room to order the vertices by degree: {error}", stacklevel=3)

    def _ranges(self) -> Partition:
        """The ranges that the ranks last said they have; those known where they do not agree, which a loss leaves."""
        states = self._coordinator.states
        starts = (*(state["lo"] for state in states), states[-1]["hi"])
        joined = all(state["hi"] == start for state, start in zip(states, starts[1:], strict=True))
        return Partition(starts) if joined else self._door.partition

    def _ids(self, values: Any, name: str) -> np.ndarray:
        self._check()
        ids = as_ids(values, name)
        check_ids(ids, self.num_vertices, name)
        return Device.to_host(ids)
