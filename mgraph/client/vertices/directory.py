"""The current numbering and ranges of a graph's vertices in the client, and how the client learns of new ones."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import numpy as np

from mgraph.checks import check_count
from mgraph.client.calls.caller import Caller
from mgraph.client.vertices.keyed import Batch, Keyed, check_keys, keyed, kind_of
from mgraph.client.vertices.numbering import Numbering
from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.failures import Recovered, Stale
from mgraph.keys import KeyArray, KeyTable, columns_in
from mgraph.partition import Partition

__all__ = ["Directory"]

T = TypeVar("T")


class Directory:
    """The numbering of one graph's vertices, which changes when ranges move, vertices are added or are reordered.

    Several threads may use it. It repeats reads for which ranges have moved meanwhile, so that no other module has to.

    Parameters
    ----------
    coordinator : Caller
    numbering : Numbering
        The numbering with which the graph is made.
    options : Options
        The options of the graph, with the device and the exchange that were chosen.
    undecided : bool
        Whether the first batch is to decide if vertices have keys.
    device : Device, optional
        Where keys are looked up; by default the CPU.

    Attributes
    ----------
    numbering : Numbering
        The numbering that this client knows. Replaced under the lock, after the workers have changed theirs.
    device : Device
    shared : bool
        Whether other clients add and remove keys. Rank 0 is then told of new ones, and tells who takes the turn.
    moved : bool
        Whether `move_to` has moved the graph, which has another directory now.
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
        self._undecided, self.shared, self.moved = undecided, False, False
        self._left: KeyTable | None = None  # of a removal of vertices, whose outcome is not known yet

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock the numbering, and hold the calls of other clients back; in this order, as everywhere."""
        with self.coordinator.lock, self._lock:
            yield

    @property
    def n_vertices(self) -> int:
        """The number of vertices, by what the ranks last said; asks none."""
        return self._ranges().n_vertices

    def renew(self, numbering: Numbering, options: Any) -> None:
        """Take over what a graph has that was opened again. Takes no lock: the thread that waits for it may have it.

        The table of keys stays: it has those that are committed, in the order of the log, and of a change under way.
        """
        self.options, self.numbering = options, numbering.with_keys(self.numbering.keys)

    @property
    def keys(self) -> str | None:
        """The kind of the vertices' keys: "int64", "string" or None; "auto" before the first batch decides."""
        numbering = self.numbering
        if self._undecided:
            self._undecided = numbering.n_vertices == 0
            if self._undecided:
                return "auto"
        return None if numbering.keys is None else numbering.keys.kind

    @property
    def has_keys(self) -> bool:
        """Whether it is decided that vertices have keys."""
        return self.keys not in (None, "auto")

    def check(self) -> Numbering:
        """Return the numbering that the ranks have; raise if no call is possible any more.

        If Ctrl-C interrupted a change, learn what the ranks made of it.
        """
        coordinator = self.coordinator
        status = coordinator.status
        if status.unsettled or not status.usable:
            coordinator.check()
            if coordinator.status.unsettled:
                coordinator.call("inspect")  # which waits until all ranks are released, and say what they have
        changed = coordinator.status.states[0].generation != self.numbering.generation
        if changed or self._left is not None or self._ranges() is not self.numbering.partition:
            with self._alone(), suppress(Recovered):  # another thread may be doing it
                self._follow()
        return self.numbering

    def ids(self, values: Any, name: str) -> np.ndarray:
        """The ids of vertices as the user names them, uint32[n]; raises as `Numbering.ids`."""
        return self.check().ids(values, name)

    def read(self, read: Callable[[Numbering], T]) -> T:
        """The result of `read` with the current numbering. If that is replaced meanwhile, read again."""
        with self.coordinator.lock:
            while True:
                numbering = self.check()
                try:
                    return read(numbering)
                except Stale:
                    with self._lock:  # waits until another thread that moves the ranges has replaced the numbering
                        if self.numbering is numbering:
                            self.coordinator.call("inspect")  # its answers carry the ranks' states, and so the ranges
                            with suppress(Recovered):
                                self._follow()
                        if self.numbering is numbering:
                            raise

    @contextmanager
    def moving(self, more: int = 0) -> Iterator[None]:
        """Lock the numbering, as it is now, while a call changes it on the workers, and then take the new one over.

        Raises
        ------
        CapacityError
            With `more` vertices to come there would be too many; or this process has no memory for their order, which
            is taken before the workers change.
        """
        with self._alone():
            self.check()
            check_count(self.n_vertices + more, "n_vertices")
            coming = self.numbering.moved(self.numbering.partition.grown(more)) if more else None
            try:
                yield
            finally:
                with suppress(Recovered):  # and what the graph has now was taken over
                    self._follow(coming)

    @contextmanager
    def growing(self, n_vertices: int) -> Iterator[int | None]:
        """As `moving`, while a batch brings vertices up to this number: the number, or None if they are there."""
        with self._alone():
            more = n_vertices - self.n_vertices
            if more <= 0:
                yield None
                return
            with self.moving(more):
                yield n_vertices

    def takes(self, batch: Batch) -> bool:
        """Whether the graph has keys; the first batch or stream decides where the user did not.

        `InvalidBatch` if the batch has others.
        """
        if self._undecided and self.keys == "auto":
            self.decide(kind_of(batch))
        keys = self.numbering.keys
        if keys is not None or batch.keys is not None:
            check_keys(batch, None if keys is None else keys.kind)
        return keys is not None

    @contextmanager
    def keyed(self, batch: Batch, directed: bool, logged: bool) -> Iterator[Keyed[Batch]]:
        """Lock the numbering while a batch or a stream of keys is applied: its ids, and the vertices that it brings.

        The new keys are vertices once the workers have them. If the batch is refused, they are forgotten. With
        `logged`, rank 0 is to know them.
        """
        with self._alone():
            self.check()
            table, n = self.numbering.keys, self.n_vertices
            assert table is not None
            table.drop(n)  # of a batch that was refused
            # Where a window of a number of edges ties, rank 0 orders edges by their keys.
            by_key = getattr(self.options, "window_edges", None) is not None
            found = keyed(table, batch, directed, logged or self.shared or by_key)
            with self.moving(found.n_vertices - n) if found.n_vertices > n else nullcontext():
                yield found

    @contextmanager
    def still(self) -> Iterator[KeyTable | None]:
        """Lock the numbering while a call uses the keys of all vertices; the table, None without keys."""
        with self._alone():
            self.check()
            yield self.numbering.keys

    def restore(self, packed: np.ndarray | None) -> None:
        """Take over the vertices of a graph that was opened, with their keys as `KeyArray.packed` has them."""
        if packed is not None:
            self.numbering = self.numbering.with_keys(self._table(packed))
        self.check()

    def _table(self, packed: np.ndarray) -> KeyTable:
        names, self._undecided = KeyArray.unpacked(packed, self.device), False
        return KeyTable(names.kind, self.device, names)

    def share(self, logged: bool) -> None:
        """Have rank 0 follow the keys, for other clients; it does where they are `logged`. Nothing without keys."""
        with self.still() as table:
            if self.keys is None or self.shared:
                return
            if not logged:
                shares: list[dict[str, Any]] = [{} for _ in self.coordinator.status.addresses]
                if table is not None and self.has_keys:
                    shares[0]["keys"] = table.names.packed(0, self.n_vertices)
                self.coordinator.call("share_keys", shares=shares)
            self.shared = True

    def join(self) -> None:
        """Take over the keys of a published graph, if it has any."""
        with self._alone():
            table = self._learned(self.numbering.n_vertices)
            if table is not self.numbering.keys:
                self.numbering = self.numbering.with_keys(table)
            self.shared = self.keys is not None

    def _learned(self, n_vertices: int) -> KeyTable | None:
        """The keys of so many vertices, of which other clients have added some, or removed some."""
        table, n = self.numbering.keys, self.numbering.n_vertices
        if table is None or table.n < n:  # of a graph that was joined just now
            n = 0
        told = self.coordinator.call("keys", {"generation": self.numbering.generation, "n": n})[0]
        if "keys" not in told:
            return None if n_vertices else table
        kind, column = columns_in(told["keys"])
        if table is None or kind != table.kind:
            return self._table(told["keys"])
        gone, self._undecided = told["gone"], False
        table.drop(n)  # of a change that was refused
        if len(gone):
            table = table.without(n, gone)
        table.number(column)
        return table

    def decide(self, kind: str | None) -> None:
        """Vertices have keys of this kind if the next batch, which is the first, is committed.

        `InvalidOption` where vertices are to be removed, and have no keys.
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
        """Lock the numbering while vertices with keys are removed: the ids that `choose` gives, ascending."""
        with self._alone():
            self.check()
            ids, table = np.unique(choose(self.numbering)), self.numbering.keys
            assert table is not None
            if not len(ids):
                yield ids
                return
            self._left = table.without(self.n_vertices, ids)
            try:
                yield ids
            finally:
                with suppress(Recovered):  # as in `moving`; the next check follows again
                    self._follow()

    def _follow(self, coming: Numbering | None = None) -> None:
        """Take over the ranges and the order from the ranks' last states; `coming` if that is what they have."""
        known, generation, ranges = self.numbering, self.coordinator.status.states[0].generation, self._ranges()
        if coming is not None and (coming.partition, coming.generation) != (ranges, generation):
            coming = None
        keys, mine = known.keys, coming is not None
        if self._left is not None and self._left.n == ranges.n_vertices:
            keys, mine = self._left, True
        if self.shared and not mine and (generation, ranges.n_vertices) != (known.generation, known.n_vertices):
            keys = self._learned(ranges.n_vertices)
        if generation != known.generation:
            wanted = [{"wanted": rank == 0} for rank in range(len(self.coordinator.status.addresses))]
            order = self.coordinator.call("order", shares=wanted)[0].get("order")
            order = None if order is None else np.ascontiguousarray(order, np.uint32)
            self.numbering = Numbering(ranges, order, generation, keys)
        else:
            now = coming or (known if ranges == known.partition else known.moved(ranges))
            self.numbering = now if now.keys is keys else now.with_keys(keys)
        if self.shared or not self.coordinator.status.unsettled:  # of a shared graph the next check asks rank 0
            self._left = None

    def _ranges(self) -> Partition:
        """The ranges in the ranks' last states; the known ones if the states disagree, as after the loss of a rank."""
        states, known = self.coordinator.status.states, self.numbering.partition
        if len(states) == 1:
            starts: tuple[int, ...] = states[0].lo, states[0].hi
        else:
            starts = (*[state.lo for state in states], states[-1].hi)
        if starts == known.starts:
            return known
        joined = all(state.hi == start for state, start in zip(states, starts[1:], strict=True))
        return Partition(starts) if joined else known
