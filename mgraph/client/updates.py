"""Changes of a graph, from the user's arguments to the report of what they did."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

from mgraph.batch import EdgeBatch
from mgraph.checks import check_count, check_growth, check_offset, check_whole
from mgraph.client import report
from mgraph.client.directory import Directory
from mgraph.client.options import Options
from mgraph.client.parts import AsParts
from mgraph.client.pipeline import Pipeline
from mgraph.client.report import Balance, UpdateReport, balance_of
from mgraph.client.shares import check_batch, deal
from mgraph.errors import CapacityError, InvalidOption

__all__ = ["Updates"]


class Updates:
    """Sends one graph's batches, additions and deletions of vertices, and moves. `DynamicGraph` documents each call.

    Parameters
    ----------
    directory : Directory
    options : Options
    parts : AsParts
        Makes the parts of a source of an ingest.
    order_due : bool
        Whether the first batch that leaves edges is to be followed by a `reorder`.
    """

    def __init__(
        self,
        directory: Directory,
        options: Options,
        parts: AsParts,
        order_due: bool,
    ) -> None:
        self._directory, self._options, self._order_due = directory, options, order_due
        self._parts = parts
        self._coordinator = directory.coordinator

    # ---- edges -------------------------------------------------------------------------------------------------------

    def apply(self, batch: EdgeBatch, offset: Any = None) -> UpdateReport:
        """Apply a batch on all workers, or on none; `offset` is its place in a source."""
        self._directory.check()
        args: dict[str, Any] = {} if offset is None else {"offset": check_offset(offset)}
        n = self._vertices_after(batch) if self._options.grows else None
        if n is None:
            done = self._send(batch, self._directory.n_vertices, args)
        else:
            with self._directory.growing(n) as more:
                done = self._send(batch, n, args if more is None else {**args, "n_vertices": more})
        self.order_first()
        return done

    def _send(self, batch: EdgeBatch, n_vertices: int, args: dict[str, Any]) -> UpdateReport:
        shares, began = self._shares(batch, n_vertices), time.perf_counter()
        answers = self._coordinator.call("update", args, shares, connect=True, commits=True)
        return report.of_batch(answers, time.perf_counter() - began)

    def _vertices_after(self, batch: Any) -> int | None:
        """The number of vertices that there are after a batch, if it brings some."""
        if not isinstance(batch, EdgeBatch) or not len(batch):
            return None
        n, largest = self._directory.n_vertices, {name: getattr(batch, name).max() for name in ("src", "dst")}
        name = max(largest, key=lambda name: int(largest[name]))
        if int(largest[name]) < n:
            return None
        at = int(getattr(batch, name).argmax())
        return check_growth(int(largest[name]), f"{name}[{at}]", n, len(batch))

    def pipeline(self, max_bytes: int) -> Pipeline:
        """Batches in flight, at most `max_bytes` of them."""
        if check_whole(max_bytes, "max_bytes") < 1:
            raise InvalidOption(f"max_bytes is {max_bytes}; at least 1 is needed")
        self._directory.check()
        return Pipeline(self._coordinator, self._shares, max_bytes)

    def ingest(self, source: Any, steps: int | None, columns: Mapping[str, str] | None) -> list[UpdateReport]:
        """Apply what the workers read."""
        self._directory.check()
        parts = self._parts(source, steps, columns)
        shares = [{"source": share} for share in parts.shares]
        answers = self._coordinator.call("ingest", shares=shares, connect=True, commits=True)
        _warn_left_out(answers)
        done = report.of_steps(answers)
        self.order_first()
        return done

    def _shares(self, batch: EdgeBatch, n_vertices: int | None = None) -> list[dict[str, Any]]:
        """A batch, checked, as contiguous shares, one a worker."""
        check_batch(batch, self._directory.n_vertices if n_vertices is None else n_vertices, self._options.weighted)
        coordinator = self._coordinator
        shared_gpu = coordinator.one_process and self._options.device == "cuda"
        return deal(batch, len(coordinator.addresses), shared_gpu=shared_gpu)

    # ---- vertices ----------------------------------------------------------------------------------------------------

    def add_vertices(self, n: int) -> range:
        """Add `n` vertices on all workers, or on none; their ids."""
        n, directory = check_count(n, "n"), self._directory
        directory.check()
        with directory.moving(more=n):
            first = directory.n_vertices
            total = first + n
            self._coordinator.call("add_vertices", {"n_vertices": total}, connect=True, commits=True)
        return range(first, total)

    def delete_vertices(self, ids: Any) -> UpdateReport:
        """Delete every edge to and from `ids`."""
        ids, began = self._directory.ids(ids, "ids"), time.perf_counter()
        answers = self._coordinator.call("delete_vertices", {"ids": ids}, connect=True, commits=True)
        return report.of_batch(answers, time.perf_counter() - began)

    # ---- where they lie ----------------------------------------------------------------------------------------------

    def balance(self) -> Balance:
        """How the graph lies on its workers, as of the last call."""
        self._coordinator.check()
        return balance_of(self._coordinator.addresses, self._coordinator.states)

    def rebalance(self) -> Balance:
        """Move the boundaries of the ranges."""
        with self._directory.moving():
            self._coordinator.call("rebalance", connect=True)
        return self.balance()

    def reorder(self) -> Balance:
        """Renew the internal order of the vertices."""
        with self._directory.moving():
            self._order_due = False
            self._coordinator.call("reorder", connect=True)
        return self.balance()

    def order_first(self) -> None:
        """After a batch: the order by degree that was asked for, once there are edges."""
        if self._order_due and any(state.edges for state in self._coordinator.states):
            try:
                self.reorder()
            except CapacityError as error:
                warnings.warn(f"the batch is committed; no room to order the vertices by degree: {error}", stacklevel=4)


def _warn_left_out(answers: list[dict[str, Any]]) -> None:
    """Tell which columns of files were not read."""
    if left := sorted({name for answer in answers for name in answer.get("left_out", ())}):
        warnings.warn(
            f"the files have columns that were not read: {', '.join(left)}; columns= says which are src, dst, weight "
            "and op",
            stacklevel=4,
        )
