"""The client's copy of a graph's numbering and ranges, and its updates from the ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from mgraph.checks import check_count
from mgraph.client.calls.caller import Caller
from mgraph.client.vertices.keyed import Batch, Keyed, check_keys, keyed, kind_of
from mgraph.client.vertices.numbering import Numbering
from mgraph.device import Device
from mgraph.distinct import distinct
from mgraph.errors import InvalidOption
from mgraph.failures import Recovered, Stale
from mgraph.forks import renew_in_children
from mgraph.keys import KeyArray, KeyTable, columns_in
from mgraph.partition import Partition
from mgraph.protocol import ShardState

__all__ = ["Directory"]

T = TypeVar("T")
_LO = attrgetter("lo")


class Directory:
    """The numbering of a graph's vertices, which changes when ranges move and when vertices are added, removed or
    reordered.

    Several threads may use it. It repeats reads whose ranges have moved meanwhile, so that no other module has to.

    Parameters
    ----------
    coordinator : Caller
    numbering : Numbering
        The numbering of the new graph.
    options : Options
        The options of the graph, with the chosen device and exchange.
    undecided : bool
        True if the first batch decides about keys.
    device : Device, optional
        The device that looks keys up; by default the CPU.

    Attributes
    ----------
    numbering : Numbering
        This client's numbering. Replaced under the lock, after the workers have changed theirs.
    device : Device
    shared : bool
        True if other clients add and remove keys. Rank 0 then collects new keys, and passes them to the next caller.
    undecided : bool
        True until the first batch decides about keys.
    moved : bool
        True if `move_to` has moved the graph, which has another directory now.
    """

    def __init__(
        self,
        coordinator: Caller,
        numbering: Numbering,
        options: Any = None,
        undecided: bool = False,
        device: Device | None = None,
    ) -> None:
        self.coordinator, self.numbering, self.options = coordinator, numbering, options
        self.device = device or Device("cpu")
        self._lock = threading.RLock()
        renew_in_children(self)
        self.undecided, self.shared, self.moved = undecided, False, False
        self._after_removal: KeyTable | None = None  # the keys after a removal whose outcome is unknown

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the numbering, and hold back the calls of other clients; always in this order."""
        with self.coordinator.lock, self._lock:
            yield

    @property
    def n_vertices(self) -> int:
        """The number of vertices by the ranks' last states; makes no call."""
        return self.ranges(self.coordinator.states).n_vertices

    def renew(self, numbering: Numbering, options: Any) -> None:
        """Take over the numbering and options of a recovered graph.

        Takes no lock, since the thread that waits for this may hold it. The table of keys stays: it has the committed
        keys, in the order of the log, and the keys of a change under way.
        """
        self.options, self.numbering = options, numbering.with_keys(self.numbering.keys)

    @property
    def keys(self) -> str | None:
        """The kind of the vertices' keys: "int64", "string" or None; "auto" before the first batch decides."""
        numbering = self.numbering
        if self.undecided:
            self.undecided = numbering.n_vertices == 0
            if self.undecided:
                return "auto"
        return None if numbering.keys is None else numbering.keys.kind

    @property
    def has_keys(self) -> bool:
        """True once vertices are known to have keys."""
        return self.keys not in (None, "auto")

    def check(self) -> Numbering:
        """Return the numbering of the ranks; raise an error if no call is possible any more.

        After a Ctrl-C in a change, ask the ranks for its outcome.
        """
        coordinator = self.coordinator
        if not coordinator.settled:
            coordinator.check()
            if coordinator.status.unsettled:
                coordinator.call("inspect")  # waits for the release of all ranks, and returns their states

        # Another client or thread may have changed the ranges or the order. A single rank has one range.
        states, numbering = coordinator.states, self.numbering
        state = states[0]
        if state.generation == numbering.generation and self._after_removal is None:
            if len(states) == 1 and state.hi == numbering.n_vertices:
                return numbering
            if self.ranges(states) is numbering.partition:
                return numbering
        with self._alone(), suppress(Recovered):  # another thread may recover the graph
            self._catch_up()
        return self.numbering

    def ids(self, values: Any, name: str) -> np.ndarray:
        """Return the ids of vertices in users' names, uint32[n]; raises the errors of `Numbering.ids`."""
        return self.check().ids(values, name)

    def read(self, read: Callable[[Numbering], T]) -> T:
        """Call `read` with the current numbering and return its result. If ranges move meanwhile, read again."""
        with self.coordinator.lock:
            while True:
                numbering = self.check()
                try:
                    return read(numbering)
                except Stale:
                    with self._lock:  # another thread that moves the ranges replaces the numbering first
                        if self.numbering is numbering:
                            self.coordinator.call("inspect")  # answers carry the ranks' states, and so the ranges
                            with suppress(Recovered):
                                self._catch_up()
                        if self.numbering is numbering:
                            raise

    @contextmanager
    def moving(self, more: int = 0) -> Iterator[None]:
        """Lock the current numbering while a call changes it on the workers, then take the new numbering over.

        Raises
        ------
        CapacityError
            With `more` vertices the graph would have too many; or this process has no memory for their order, which is
            reserved before the workers change.
        """
        with self._alone():
            self.check()
            check_count(self.n_vertices + more, "n_vertices")
            coming = self.numbering.moved(self.numbering.partition.grown(more)) if more else None
            try:
                yield
            finally:
                with suppress(Recovered):  # recovery has taken the new state over
                    self._catch_up(coming)

    @contextmanager
    def growing(self, n_vertices: int) -> Iterator[int | None]:
        """Lock the numbering while a batch adds vertices up to this number: yield it, or None without new ones."""
        with self._alone():
            more = n_vertices - self.n_vertices
            if more <= 0:
                yield None
                return
            with self.moving(more):
                yield n_vertices

    def takes(self, batch: Batch) -> bool:
        """Return True if the graph has keys.

        The first batch or stream decides if the user did not. Raises `InvalidBatch` if the batch has other keys.
        """
        if self.undecided and self.keys == "auto":
            self.decide(kind_of(batch))
        keys = self.numbering.keys
        if keys is not None or batch.keys is not None:
            check_keys(batch, None if keys is None else keys.kind)
        return keys is not None

    @contextmanager
    def keyed(self, batch: Batch, directed: bool, logged: bool) -> Iterator[Keyed[Batch]]:
        """Lock the numbering while a batch or a stream of keys is applied: yield it in ids, with its new vertices.

        The new keys are vertices once the workers have them. If the batch is refused, they are dropped. With `logged`,
        rank 0 gets them.
        """
        with self._alone():
            self.check()
            table, n = self.numbering.keys, self.n_vertices
            if table is None:  # another thread's batch was the first, and has ids
                check_keys(batch, None)
            assert table is not None

            # Keys of a batch that was refused may still be in the table.
            table.drop(n)
            # If a window of a number of edges ties, rank 0 orders edges by their keys.
            by_key = getattr(self.options, "window_edges", None) is not None
            translated = keyed(table, batch, directed, logged or self.shared or by_key)
            with self.moving(translated.n_vertices - n) if translated.n_vertices > n else nullcontext():
                yield translated

    @contextmanager
    def still(self) -> Iterator[KeyTable | None]:
        """Lock the numbering while a call uses the keys of all vertices: yield the table, None without keys."""
        with self._alone():
            self.check()
            yield self.numbering.keys

    def restore(self, packed: np.ndarray | None) -> None:
        """Take over the vertices of an opened graph, with keys in the form of `KeyArray.packed`."""
        if packed is not None:
            self.numbering = self.numbering.with_keys(self._table(packed))
        self.check()

    def _table(self, packed: np.ndarray) -> KeyTable:
        names, self.undecided = KeyArray.unpacked(packed, self.device), False
        return KeyTable(names.kind, self.device, names)

    def announce_keys(self, logged: bool) -> None:
        """Have rank 0 collect the keys for other clients; it does so already if they are `logged`."""
        with self.still() as table:
            if self.keys is None or self.shared:
                return

            # A log makes rank 0 collect them; without one it gets the list now.
            if not logged:
                shares: list[dict[str, Any]] = [{} for _ in self.coordinator.status.addresses]
                if table is not None and self.has_keys:
                    shares[0]["keys"] = table.names.packed(0, self.n_vertices)
                self.coordinator.call("share_keys", shares=shares)
            self.shared = True

    def join(self) -> None:
        """Take over the keys of a published graph, if it has keys."""
        with self._alone():
            table = self._learned(self.numbering.n_vertices)
            if table is not self.numbering.keys:
                self.numbering = self.numbering.with_keys(table)
            self.shared = self.keys is not None

    def _learned(self, n_vertices: int) -> KeyTable | None:
        """Fetch the keys up to vertex `n_vertices`, after other clients added or removed vertices."""
        table, n = self.numbering.keys, self.numbering.n_vertices
        if table is None or table.n < n:  # the graph was joined just now
            n = 0
        difference = self.coordinator.call("keys", {"generation": self.numbering.generation, "n": n})[0]
        if "keys" not in difference:
            return None if n_vertices else table

        # Without a table of this kind, the answer has all keys.
        kind, column = columns_in(difference["keys"])
        if table is None or kind != table.kind:
            return self._table(difference["keys"])
        removed, self.undecided = difference["gone"], False
        table.drop(n)  # keys of a change that was refused
        if len(removed):
            table = table.without(n, removed)
        table.number(column)
        return table

    def decide(self, kind: str | None) -> None:
        """Set the kind of keys, which the first batch confirms when it is committed.

        Raises `InvalidOption` if vertices should be removed, and have no keys.
        """
        if kind is None and getattr(self.options, "drop_isolated", False):
            raise InvalidOption(
                "drop_isolated removes vertices, and these are ids without keys, which stay; create the graph with "
                'keys="int64" or keys="string"'
            )
        with self._alone():
            if self.shared:  # another client may have decided
                self.check()
            if self.keys == "auto":
                self.numbering = self.numbering.with_keys(None if kind is None else KeyTable(kind, self.device))

    @contextmanager
    def removing(self, choose: Callable[[Numbering], np.ndarray]) -> Iterator[np.ndarray]:
        """Lock the numbering while vertices with keys are removed: yield the ids of `choose`, ascending."""
        with self._alone():
            self.check()
            ids, table = distinct(choose(self.numbering)), self.numbering.keys
            assert table is not None
            if not len(ids):
                yield ids
                return

            # Make the new table before the workers change, so that a lack of memory changes nothing.
            self._after_removal = table.without(self.n_vertices, ids)
            try:
                yield ids
            finally:
                with suppress(Recovered):  # the next check catches up
                    self._catch_up()

    def _catch_up(self, coming: Numbering | None = None) -> None:
        """Take over ranges and order from the ranks' last states; `coming` if it matches them."""
        # Use the numbering that this client prepared, if the ranks have it.
        current, states = self.numbering, self.coordinator.states
        generation, ranges = states[0].generation, self.ranges(states)
        if coming is not None and (coming.partition, coming.generation) != (ranges, generation):
            coming = None
        keys, own_change = current.keys, coming is not None
        if self._after_removal is not None and self._after_removal.n == ranges.n_vertices:
            keys, own_change = self._after_removal, True

        # Another client may have changed the keys.
        if (
            self.shared
            and not own_change
            and (generation, ranges.n_vertices) != (current.generation, current.n_vertices)
        ):
            keys = self._learned(ranges.n_vertices)

        # A new order comes from rank 0; otherwise only the ranges moved.
        if generation != current.generation:
            wanted = [{"wanted": rank == 0} for rank in range(len(self.coordinator.status.addresses))]
            order = self.coordinator.call("order", shares=wanted)[0].get("order")
            order = None if order is None else np.ascontiguousarray(order, np.uint32)
            self.numbering = Numbering(ranges, order, generation, keys)
        else:
            now = coming or (current if ranges == current.partition else current.moved(ranges))
            self.numbering = now if now.keys is keys else now.with_keys(keys)
        if self.shared or not self.coordinator.status.unsettled:  # if shared, the next check asks rank 0
            self._after_removal = None

    def ranges(self, states: Sequence[ShardState]) -> Partition:
        """Return the ranges by the ranks' `states`; the current ranges if states disagree, as after a loss."""
        current = self.numbering.partition
        if len(states) == 1:
            starts: tuple[int, ...] = states[0].lo, states[0].hi
        else:
            starts = (*map(_LO, states), states[-1].hi)
        if starts == current.starts:
            return current
        contiguous = all(state.hi == start for state, start in zip(states, starts[1:], strict=True))
        return Partition(starts) if contiguous else current
