"""Changes of a graph, from the user's arguments to the report."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch, check_ids
from mgraph.checks import check_count, check_growth, check_offset, check_whole
from mgraph.client.batches.mixed import Answers, in_flight
from mgraph.client.batches.pipeline import Pipeline, Shares
from mgraph.client.batches.split import ONCE, WHOLE, deal, largest_ids
from mgraph.client.batches.windows import leave_isolated, remove_isolated
from mgraph.client.calls.batch_group import SMALL
from mgraph.client.options import Options
from mgraph.client.reports.history import History
from mgraph.client.reports.progress import Done, shown
from mgraph.client.reports.report import Balance, UpdateReport, balance_of, of_batch
from mgraph.client.results.maintained import Live
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.keyed import Keyed
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidBatch, InvalidOption, MgraphError
from mgraph.facade import type_name, warn
from mgraph.failures import Recovered
from mgraph.forks import renew_in_children
from mgraph.keys import NONE
from mgraph.tables.arrays import is_one
from mgraph.tables.ids import GROW
from mgraph.tables.times import as_stamps

__all__ = ["Updates"]

logger = logging.getLogger(__name__)

LARGE = 1 << 20  #: edges of a batch from which its progress is shown


class Updates:
    """Sends a graph's batches, additions and deletions of vertices, and moves.

    `DynamicGraph` documents each call.

    Parameters
    ----------
    directory : Directory
    options : Options
    order_due : bool
        True if a `reorder` must follow the first batch with edges.
    logged : bool
        True if the graph has a store.

    Attributes
    ----------
    order_due : bool
        True until that `reorder` was made.
    followers : tuple of weak references to Live
        The eager maintained results, which are updated after each change. Replaced as a whole.
    history : History
        The changes and runs of this process.
    """

    def __init__(
        self,
        directory: Directory,
        options: Options,
        order_due: bool,
        logged: bool = False,
    ) -> None:
        self._directory, self._options, self.order_due = directory, options, order_due
        self._logged = logged
        self._coordinator = directory.coordinator
        self.followers, self._registering = tuple["weakref.ref[Live]", ...](), threading.RLock()
        renew_in_children(self, "_registering")
        self.history = History()
        self._rounds = self._sticks = False  # True once a warning was given

    def register(self, live: Live) -> None:
        """Update a maintained result after each change from now on."""
        with self._registering:
            self.followers = (*(known for known in self.followers if known() is not None), weakref.ref(live))

    def _followers(self) -> list[Live]:
        """Return the eager maintained results that are not closed."""
        return [live for known in self.followers if (live := known()) is not None and not live.closed]

    @property
    def _eager(self) -> bool:
        """True if any maintained result is updated after each change."""
        return bool(self.followers and self._followers())

    def followed(self) -> None:
        """Update the eager maintained results.

        An error is logged only, since the change was made.
        """
        for live in self._followers():
            try:
                live.result()
            except MgraphError as error:
                if live.closed:  # another thread has closed it
                    continue
                logger.warning("the maintained result of %s is not up to date: %s", live.name, error)

    # ---- edges -------------------------------------------------------------------------------------------------------

    def apply(self, batch: EdgeBatch, offset: Any = None, *, last: bool = True) -> UpdateReport:
        """Apply a batch on all workers, or on none; `offset` is its place in a source.

        Eager maintained results are updated after the `last` batch of a call.
        """
        args: dict[str, Any] = {} if offset is None else {"offset": check_offset(offset)}
        before, edges = self._coordinator.epoch, len(batch.src)
        try:
            # Show the progress of large batches only, since a display takes a thread.
            if last and edges >= LARGE:
                with shown("update", lambda: Done(0, None, f"{edges:,} edges")):
                    done = self._apply(batch, args)
            else:
                done = self._apply(batch, args)
        except KeyboardInterrupt as error:
            self._tell(error, edges, before)
            raise
        if self.order_due:
            self.order_first()
        if last and self.followers:
            self.followed()
        return done

    def _apply(self, batch: EdgeBatch, args: dict[str, Any]) -> UpdateReport:
        directory = self._directory
        with self._coordinator.lock:
            numbering = directory.check()
            # Translate keys into ids first.
            if (numbering.keys is not None or batch.keys is not None or directory.undecided) and directory.takes(batch):
                with self._keyed(batch) as keyed:
                    done = self._send_keyed(keyed, args)
                self._leave_isolated()
                return done
            # Ids in a graph that grows may be new vertices; in another graph they are checked.
            if not self._options.grows:
                return self._call("update", args, partial(self._shares, batch, numbering.n_vertices))
            shares, n = partial(self._shares, batch), self._vertices_after(batch, numbering.n_vertices)
            if n is None:
                return self._call("update", args, shares)
            with directory.growing(n) as more:
                if directory.numbering.keys is None:
                    return self._call("update", args if more is None else {**args, "n_vertices": more}, shares)
        # Another thread's batch was the first, and has keys.
        return self._apply(batch, args)

    def _tell(self, error: BaseException, edges: int, before: int) -> None:
        """Note on an error whether its batch is in the graph.

        `before` is the epoch before the batch. No note is added if the outcome is unknown.
        """
        status = self._coordinator.status
        if not status.unsettled:
            outcome = "it is in the graph" if status.epoch > before else "nothing was changed"
            stopped = f"graph {status.graph}: a batch of {edges:,} edges was stopped"
            error.add_note(f"{stopped}; {outcome}, epoch {status.epoch}")

    def _check_weights(self, batch: EdgeBatch) -> None:
        """Raise `InvalidBatch` if the graph is unweighted; warn once of rounding in sums."""
        if not self._options.weighted:
            raise InvalidBatch("the batch has weights and the graph is unweighted; create it with weighted=True")
        if batch.rounded and self._options.combine == "sum" and not self._rounds:
            self._rounds = True
            warn(f"{batch.rounded}; sums are float32, in which rounding adds up")

    def _warn_of_sums(self) -> None:
        """Warn once if a sum no longer grows."""
        if not self._sticks and any(state.stuck for state in self._coordinator.states):
            self._sticks = True
            warn(
                "a sum of weights no longer grows: sums are float32, and it is about 16,777,216 times the weight that "
                "was added, or more; past 3.4e38 it is inf"
            )

    def _keyed(self, batch: EdgeBatch) -> AbstractContextManager[Keyed[EdgeBatch]]:
        if batch.weight is not None:
            self._check_weights(batch)
        return self._directory.keyed(batch, self._options.directed, self._logged)

    def _send_keyed(self, keyed: Keyed[EdgeBatch], args: dict[str, Any]) -> UpdateReport:
        def shares() -> list[dict[str, Any]]:
            shares_by_rank = self._shares(keyed.batch, checked=True)
            if "n_vertices" in args:
                shares_by_rank[0] = {**shares_by_rank[0], "keys": keyed.brought}
            return shares_by_rank

        if keyed.n_vertices > self._directory.n_vertices:
            args = {**args, "n_vertices": keyed.n_vertices}
        return self._call("update", args, shares, keyed.missing)

    def _call(
        self, method: str, args: dict[str, Any], shares: Callable[[], Any] = lambda: None, absent: int = 0
    ) -> UpdateReport:
        """Make a change and return its report.

        The ranks' shares are made again after the graph came back on other workers.
        """
        coordinator, began = self._coordinator, perf_counter()
        while True:
            try:
                answers = coordinator.call(method, args, shares())
            except Recovered:
                continue
            if self._options.combine == "sum":
                self._warn_of_sums()
            done = of_batch(answers, perf_counter() - began, absent)
            kind = "delete_vertices" if method == "remove_vertices" else method
            operations = done.inserted + done.updated + done.deleted + done.missing + done.expired
            self.history.add(kind, coordinator, done.epoch, operations if operations > 0 else 0, done.seconds)
            return done

    def _vertices_after(self, batch: Any, n: int) -> int | None:
        """Return the number of vertices after a batch with ids that the `n` vertices of a numbering do not have."""
        if not len(batch):
            return None
        src, dst = largest_ids(batch.src, batch.dst)
        if max(src, dst) < n:
            return None
        name, ids = ("src", batch.src) if src >= dst else ("dst", batch.dst)
        return check_growth(max(src, dst), f"{name}[{int(ids.argmax())}]", n, len(batch))

    def landed(self) -> None:
        """Drop isolated vertices and update eager results after a batch."""
        self._leave_isolated()
        if self._options.combine == "sum":
            self._warn_of_sums()
        self.followed()

    def _leave_isolated(self) -> None:
        if self._options.drop_isolated and self._directory.numbering.keys is not None:
            leave_isolated(self._directory, "the batch is committed")

    def pipeline(self, max_bytes: int, *, last: bool = True) -> Pipeline:
        """Return a pipeline with at most `max_bytes` in flight; `landed` follows if it is the `last` of a call."""
        if check_whole(max_bytes, "max_bytes") < 1:
            raise InvalidOption(f"max_bytes is {max_bytes}; at least 1 is needed")
        self._directory.check()
        landed = self.landed if last else lambda: None
        return Pipeline(self._coordinator, self._sending, max_bytes, self._streaming, landed, self.history)

    def _sending(
        self, batch: Any, args: dict[str, Any], land: Callable[[], None]
    ) -> AbstractContextManager[Shares | UpdateReport]:
        """Prepare a batch for a pipeline: return a context manager that yields its shares, or its report."""
        if not isinstance(batch, EdgeBatch):
            raise TypeError(
                f"a pipeline takes an EdgeBatch, got {type_name(batch)}; stream() of the graph takes tables and sends "
                "several batches in flight, too"
            )
        # Ids are sent as they are. Vertices that come with the keys of another thread's batch are not known by ids.
        n_vertices = self._directory.n_vertices
        if self._eager or self._directory.takes(batch):
            return self._sending_apart(batch, args, land)
        return nullcontext(Shares(_with(args, self._shares(batch, n_vertices, in_pipeline=True))))

    @contextmanager
    def _sending_apart(
        self, batch: EdgeBatch, args: dict[str, Any], land: Callable[[], None]
    ) -> Iterator[Shares | UpdateReport]:
        """Prepare a batch with keys for a pipeline, or any batch while a result is eager.

        With an eager result, or with new keys, a batch cannot overlap: it is applied after the batches in flight, and
        its report is yielded.
        """
        if not self._directory.takes(batch):
            land()
            done = self._call("update", args, partial(self._shares, batch, self._directory.n_vertices))
        else:
            with self._keyed(batch) as keyed:
                if not self._eager and keyed.n_vertices == self._directory.n_vertices:
                    yield Shares(_with(args, self._shares(keyed.batch, checked=True, in_pipeline=True)), keyed.missing)
                    return
                land()
                done = self._send_keyed(keyed, args)

        # The batch was applied already.
        self.followed()
        yield done

    @contextmanager
    def _streaming(self, operations: Any, land: Callable[[], None]) -> Iterator[Any]:
        """Prepare a stream of updates and queries for a pipeline, like `_sending`."""
        with in_flight(self._directory, self._options, self._logged, operations, land, alone=self._eager) as prepared:
            if not isinstance(prepared, Answers):
                yield prepared
                return
        self.followed()
        yield prepared

    def _shares(
        self,
        batch: EdgeBatch,
        n_vertices: int | None = None,
        *,
        checked: bool = False,
        in_pipeline: bool = False,
    ) -> list[dict[str, Any]]:
        """Return each rank's share of a batch: a contiguous part, or the whole batch if it is small.

        It is checked first, its ids against `n_vertices`, unless it was `checked`. Exchanges of a pipeline overlap, and
        batches with times are exchanged in any case: there only the smallest go whole. GPUs get larger ones whole.

        Raises
        ------
        UnknownVertex, InvalidBatch
            An id is past the graph's vertices; or the graph is unweighted and the batch has weights.
        """
        options = self._options
        src, dst, weight, stamps = batch.src, batch.dst, batch.weight, batch.time
        # The largest ids show if any is unknown; only then search for it.
        if n_vertices is not None and len(src):
            of_src, of_dst = largest_ids(src, dst)
            if of_src >= n_vertices or of_dst >= n_vertices:
                check_ids(src, n_vertices, "src", GROW)
                check_ids(dst, n_vertices, "dst", GROW)
        if weight is not None and not checked:
            self._check_weights(batch)
        if stamps is not None or options.times is not None:
            stamps = as_stamps(batch, options.times)
        columns = {"src": src, "dst": dst, "weight": weight, "op": batch.op, "time": stamps}
        size, shared_gpu = self._directory.numbering.partition.size, options.device == "cuda"
        most, once = (SMALL, 0) if in_pipeline or stamps is not None else (WHOLE, ONCE[options.device])
        once = once if once and size > 1 and self._coordinator.write_once else 0
        return deal(columns, size, shared_gpu and self._coordinator.one_process, most, once)

    # ---- vertices ----------------------------------------------------------------------------------------------------

    def add_vertices(self, n: Any) -> range:
        """Add `n` vertices on all workers, or on none, and return their ids.

        In a graph with keys, `n` is an array of keys, and the new ones are added.
        """
        directory = self._directory
        with self._coordinator.lock:
            directory.check()
            if directory.keys == "auto" and is_one(n):
                directory.decide(None)
            elif directory.keys is not None:
                return self._add_keys(n)

            # Without keys, new vertices get the next ids.
            n = check_count(n, "n")
            with directory.moving(more=n):
                first = directory.n_vertices
                total = first + n
                self._add(total)
            self.followed()
        return range(first, total)

    def numbers(self, keys: Any) -> np.ndarray:
        """Return users' ids of a column of different keys, uint32[n] on the host; new keys become vertices."""
        table = self._directory.numbering.keys
        assert table is not None, "the caller has keys of the graph's kind"
        if (table.find(keys, self._directory.n_vertices) == np.uint32(NONE)).any():
            self.add_vertices(keys)
        return Device.to_host(table.find(keys))

    def _add(self, n_vertices: int, keys: np.ndarray | None = None) -> None:
        """Add vertices up to this number, with keys for the log.

        Rank 0 gets the keys.
        """
        began, n, caller = perf_counter(), n_vertices - self._directory.n_vertices, self._coordinator
        while True:
            shares: list[dict[str, Any]] = [{} for _ in self._coordinator.status.addresses]
            shares[0]["keys"] = keys
            with suppress(Recovered):
                self._coordinator.call("add_vertices", {"n_vertices": n_vertices}, shares)
                self.history.add("add_vertices", caller, caller.epoch, n, perf_counter() - began)
                return

    def expire(self, before: int) -> UpdateReport:
        """Delete every edge with an earlier time than `before`."""
        with self._coordinator.lock:
            self._directory.check()
            done = self._call("expire", {"before": before})
        self.landed()
        return done

    def delete_vertices(self, ids: Any) -> UpdateReport:
        """Delete every edge to and from `ids`."""
        if self._directory.numbering.keys is None:
            with self._coordinator.lock:
                done = self._call("delete_vertices", {"ids": self._directory.ids(ids, "ids")})
        else:
            with self._directory.removing(lambda now: now.ids(ids, "ids")) as removed:
                done = self._call("remove_vertices", {"ids": removed})
        self.landed()
        return done

    def drop_isolated(self) -> int:
        """Remove all vertices without edges as one epoch, and return their number."""
        self._directory.check()
        removed = remove_isolated(self._directory)
        self.followed()
        return removed

    def _add_keys(self, keys: Any) -> range:
        if isinstance(keys, int | str | np.number):
            raise InvalidOption(f"n is {keys!r}; the graph has keys: give a list of the keys to add")
        batch = EdgeBatch.of({"src": keys, "dst": keys}, self._directory.keys, {})
        if not self._directory.takes(batch):
            raise InvalidOption("these are ids of a graph without keys; give the number of vertices to add, or keys=")
        with self._keyed(batch) as keyed:
            first = self._directory.n_vertices
            self._add(keyed.n_vertices, keyed.brought)
        self.followed()
        return range(first, keyed.n_vertices)

    # ---- where they lie ----------------------------------------------------------------------------------------------

    def balance(self) -> Balance:
        """Return the distribution of the graph over its workers.

        It is known from the last call; no call is made.
        """
        self._coordinator.check()
        return balance_of(self._coordinator.status.addresses, self._coordinator.states)

    def rebalance(self) -> Balance:
        """Move the boundaries of the ranges."""
        with self._directory.moving():
            self._coordinator.call("rebalance")
        return self.balance()

    def reorder(self) -> Balance:
        """Renew the internal order of the vertices."""
        with self._directory.moving():
            self.order_due = False
            self._coordinator.call("reorder")
        return self.balance()

    def order_first(self) -> None:
        """Order the vertices by degree, if this was requested and the graph has edges by now."""
        if self.order_due and any(state.edges for state in self._coordinator.states):
            try:
                self.reorder()
            except CapacityError as error:
                warn(f"the batch is committed; no room to order the vertices by degree: {error}")


def _with(args: dict[str, Any], shares: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return shares with further arguments."""
    return [{**share, **args} for share in shares] if args else shares
