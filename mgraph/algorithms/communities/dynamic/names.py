"""Names of communities, which pass from one read to the next, and are never used again.

Each old community offers its name to the new community that holds most of its members. If a new community gets several
offers, the old community with the most members in it wins, and the others have merged into the winner. Ties go to the
community with the least vertex. A new community without an offer gets a new name: it was split from an old one if more
than half of its members come from there, and otherwise born.

Everything is kept by users' ids, and communities are labelled by their least vertex, so ranges and the order of the
vertices do not matter, and every rank computes the same. Only communities whose members changed are visited one by one,
on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.distinct import distinct

__all__ = ["EVENTS", "Names"]

#: what happens to a community, by its code
EVENTS = ("born", "died", "merged into", "split from", "grown", "shrunk", "changed", "lost")
BORN, DIED, MERGED, SPLIT, GROWN, SHRUNK, CHANGED, LOST = range(len(EVENTS))
NOWHERE = 2**32 - 1  #: no label
NONE = -1  #: no other community; a vertex that had none

Events = list[tuple[int, int, int, int, int]]


class Names:
    """Names of the communities at the last read.

    Attributes
    ----------
    next : int
        The next name.
    read : int or None
        The epoch of the last read; None before the first, and after one that failed.
    resumed, lost : bool
        True before the first read after a store was opened, which had these names; and if reads after `read` may have
        been lost.
    labels : uint32[n]
        The least vertex of each vertex's community, by users' ids.
    names, sizes : int64[n]
        The name of each community and its number of members at the last read, by its label.
    alive : int64[n] or None
        The number of these members that are still in the graph; None for all.
    count : int
        The number of communities.
    thinned : int64[k]
        The labels of communities that lost members with their vertices since.
    gone : list of (name, size)
        Communities of which all vertices were removed since.
    passed : dict
        What the last read changed, in arrays. Events: `event`, a place in `EVENTS`, `name`, `other`, `before` and
        `after`, the sizes. Vertices whose name changed, by users' ids: `vertex`, `origin`, `target`.
    """

    def __init__(self, first_name: int = 0) -> None:
        self.next = first_name
        self.read: int | None = None
        self.resumed = self.lost = False
        self.labels: Array = None
        self.names: Array = None
        self.sizes: Array = None
        self.alive: Array = None
        self.count = 0
        self.thinned = np.empty(0, np.int64)
        self.gone: list[tuple[int, int]] = []
        self.passed: dict[str, np.ndarray] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(a.nbytes) for a in (self.labels, self.names, self.sizes, self.alive) if a is not None)

    # ---- in a store --------------------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """Return the names as plain values and copies in host memory, for `resume`."""
        if self.labels is None or self.read is None:
            return {"next": self.next}
        alive = self.sizes if self.alive is None else self.alive
        names, sizes, alive = (Device.to_host(column) for column in (self.names, self.sizes, alive))
        at = np.flatnonzero((sizes > 0) | (alive > 0))
        communities: dict[str, Any] = {
            "label": at.astype(np.uint32),
            "name": names[at],
            "size": sizes[at],
            "alive": alive[at],
        }
        more: dict[str, Any] = {"gone": np.array(self.gone, np.int64).reshape(-1, 2), "thinned": self.thinned}
        more |= {"read": self.read, "lost": self.lost, "labels": Device.to_host(self.labels).copy()}
        return {"next": self.next, **communities, **more}

    def resume(self, saved: Mapping[str, Any], lost: bool) -> None:
        """Take up `saved` names, in host memory; `lost` as the attribute."""
        self.next = max(self.next, saved["next"])
        if "labels" not in saved:
            return
        at, n = saved["label"], len(saved["labels"])
        self.names, self.sizes, self.alive = np.full(n, NONE, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.names[at], self.sizes[at], self.alive[at] = saved["name"], saved["size"], saved["alive"]
        self.labels, self.thinned, self.read = saved["labels"], saved["thinned"], saved["read"]
        self.gone = [(name, size) for name, size in saved["gone"].tolist()]
        self.count, self.resumed, self.lost = int((self.alive > 0).sum()), True, lost or saved["lost"]

    def move_to(self, device: Device) -> None:
        """Move the arrays to the memory of `device`."""
        for name in ("labels", "names", "sizes", "alive"):
            if (column := getattr(self, name)) is not None:
                setattr(self, name, device.asarray(Device.to_host(column)))

    # ---- from read to read -------------------------------------------------------------------------------------------

    def remove(self, device: Device, ids: np.ndarray) -> None:
        """Forget users' `ids`, whose vertices are removed. Later ids move up."""
        if self.labels is None:
            return
        ids = ids[ids < len(self.labels)]  # others came after the last read

        # Label the communities by the least of the vertices that stay.
        labels, names, sizes = (Device.to_host(a) for a in (self.labels, self.names, self.sizes))
        was = np.flatnonzero(labels == np.arange(len(labels)))
        kept = np.delete(np.arange(len(labels)), ids)
        old, places = labels[kept], np.arange(len(kept), dtype=np.uint32)
        least = np.full(len(labels), NOWHERE, np.uint32)
        least[old[::-1]] = places[::-1]
        empty = was[least[was] == NOWHERE]
        self.gone += list(zip(names[empty].tolist(), sizes[empty].tolist(), strict=True))
        self.count -= len(empty)

        # Move names and sizes to the new labels.
        was = was[least[was] < NOWHERE]
        columns = []
        for column in (names, sizes):
            moved = np.zeros(len(kept), np.int64)
            moved[least[was]] = column[was]
            columns.append(device.asarray(moved))
        self.names, self.sizes = columns
        alive = np.bincount(least[old], minlength=len(kept)).astype(np.int64)
        self.thinned = np.flatnonzero(alive != Device.to_host(self.sizes))
        self.labels, self.alive = device.asarray(least[old]), device.asarray(alive)

    def pass_on(self, device: Device, labels: Array, vertices: np.ndarray | None = None) -> None:
        """Name the communities of `labels`, uint32[n] by users' ids, and write the changes to `passed`.

        With `vertices`, users' ids in any order, only these may have other labels than at the last read, and `labels`
        are theirs: a uint32[k] on the host.

        O(n) to compare all labels, else O(k log k) for k vertices with another label.
        """
        if self.labels is None:
            self._begin(device, labels)
        elif vertices is None:
            self._compare(device, labels)
        else:
            old = _host(device.gather(self.labels, device.asarray(vertices))) if len(vertices) else vertices
            differ = old != labels
            if differ.any() or self.alive is not None or self.gone or self.lost:
                vertices, labels = vertices[differ], labels[differ]
                self._pass_on(device, vertices, old[differ], labels.astype(np.int64), np.empty(0, np.int64))
                device.scatter(self.labels, device.asarray(vertices), device.asarray(labels))
            else:
                self.passed = {**_columns([]), **_moves(np.empty((3, 0), np.int64))}

    def _compare(self, device: Device, labels: Array) -> None:
        """Pass names on to the communities of `labels`."""
        xp, n, before = device.xp, len(labels), len(self.labels)
        if n > before:
            self.names, self.sizes = (_longer(device, column, n) for column in (self.names, self.sizes))
        vertices = xp.flatnonzero(labels[:before] != self.labels)
        old, new = (_host(device.gather(column, vertices)) for column in (self.labels, labels))
        self._pass_on(device, _host(vertices), old, new, _host(labels[before:]))
        self.labels = labels

    def _pass_on(
        self, device: Device, vertices: np.ndarray, old: np.ndarray, new: np.ndarray, come: np.ndarray
    ) -> None:
        """Pass names on where `vertices` have `new` labels instead of `old` ones; `come` are those of new vertices."""
        xp, before, n = device.xp, len(self.labels), len(self.labels) + len(come)
        alive = self.sizes if self.alive is None else _longer(device, self.alive, n)

        # Count the vertices by their old and new labels. Only these labels are looked at.
        pairs, counts = np.unique(old.astype(np.uint64) << np.uint64(32) | new.astype(np.uint64), return_counts=True)
        sources, targets = (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(NOWHERE)).astype(np.int64)
        looked_at = distinct(np.concatenate([sources, targets, come, self.thinned]))
        at = device.asarray(looked_at)
        own, size, members = (Device.to_host(device.gather(column, at)) for column in (self.names, self.sizes, alive))

        # A row of the table has an old label, a new label and the number of common members.
        stay = members - _sums(looked_at, sources, counts)
        table = np.array(
            [np.concatenate(columns) for columns in ((looked_at, sources), (looked_at, targets), (stay, counts))]
        )
        table = table[:, table[2] > 0]
        now = _sums(looked_at, table[1], table[2]) + _sums(looked_at, come, np.ones(len(come), np.int64))
        passed, events = self._passed(table, looked_at, own, size, now)
        events += [(DIED, name, NONE, members, 0) for name, members in self.gone]
        events += [(LOST, NONE, NONE, NONE, NONE)] if self.lost else []

        # List the vertices whose name changed, also those with the same label, if its community has another name.
        moves = [(vertices, old, new)]
        renamed = looked_at[(own != passed) & (stay > 0)]
        if len(renamed):
            mark = device.zeros(n, np.uint8)
            mark[device.asarray(renamed)] = 1
            stayed = device.gather(mark, self.labels)
            stayed[device.asarray(vertices)] = 0
            stayed = xp.flatnonzero(stayed)
            same = _host(device.gather(self.labels, stayed))
            moves.append((_host(stayed), same, same))
        vertex, source, target = (np.concatenate(columns) for columns in zip(*moves, strict=True))
        names = own[np.searchsorted(looked_at, source)], passed[np.searchsorted(looked_at, target)]
        order = np.argsort(vertex)
        order = order[names[0][order] != names[1][order]]
        fresh = np.arange(before, n), np.full(n - before, NONE), passed[np.searchsorted(looked_at, come)]
        moved = (column[order] for column in (vertex, *names))
        rows = [np.concatenate(part) for part in zip(moved, fresh, strict=True)]

        # Write it down.
        self.names[at], self.sizes[at] = device.asarray(passed), device.asarray(now)
        self.count += int((now > 0).sum()) - int((members > 0).sum())
        self.alive, self.gone, self.thinned = None, [], np.empty(0, np.int64)
        self.lost = False
        self.passed = {**_columns(events), **_moves(np.array(rows, np.int64))}

    def _begin(self, device: Device, labels: Array) -> None:
        """Name all communities at the first read."""
        xp, n = device.xp, len(labels)
        sizes, names = xp.bincount(labels, minlength=n).astype(np.int64), device.full(n, NONE, np.int64)
        communities = xp.flatnonzero(sizes)
        self.count = len(communities)
        names[communities] = xp.arange(self.next, self.next + self.count)
        self.next += self.count
        self.labels, self.names, self.sizes = labels, names, sizes
        self.passed = {**_columns([]), **_moves(np.empty((3, 0), np.int64))}

    def _passed(
        self, table: np.ndarray, looked_at: np.ndarray, own: np.ndarray, size: np.ndarray, now: np.ndarray
    ) -> tuple[np.ndarray, Events]:
        """Return the new names of the labels `looked_at`, and the events.

        `own` and `size` are the names and sizes at the last read, `now` the new sizes.
        """
        # Each old community chooses; each new one takes an offer.
        order = np.lexsort((table[1], -table[2], table[0]))
        offers = _firsts(table[:, order], 0)
        order = np.lexsort((offers[0], -offers[2], offers[1]))
        offers = offers[:, order]
        first = np.ones(offers.shape[1], bool)
        first[1:] = offers[1, 1:] != offers[1, :-1]
        givers, takers = (np.searchsorted(looked_at, row) for row in offers[:2])
        passed = np.full(len(looked_at), NONE)
        passed[takers[first]] = own[givers[first]]

        # Losers merge.
        lost, won = givers[~first], passed[takers[~first]]
        none = np.full(len(looked_at), NONE)
        events = [(np.full(len(lost), MERGED), own[lost], won, size[lost], np.zeros(len(lost), np.int64))]

        # Winners may have other members.
        a, b, common = givers[first], takers[first], offers[2, first]
        kinds = np.where(now[b] > size[a], GROWN, np.where(now[b] < size[a], SHRUNK, CHANGED))
        differ = (size[a] != now[b]) | (common != size[a])
        events += [tuple(column[differ] for column in (kinds, own[a], none[: len(a)], size[a], now[b]))]

        # New communities get new names, and are split from where most of their members were.
        new = np.flatnonzero((now > 0) & (passed == NONE))
        passed[new] = np.arange(self.next, self.next + len(new))
        self.next += len(new)
        origin, places = none.copy(), np.searchsorted(looked_at, table[1])
        most = 2 * table[2] > now[places]
        origin[places[most]] = own[np.searchsorted(looked_at, table[0, most])]
        kinds = np.where(origin[new] == NONE, BORN, SPLIT)
        events += [(kinds, passed[new], origin[new], np.zeros(len(new), np.int64), now[new])]
        return passed, [row for columns in events for row in zip(*(column.tolist() for column in columns), strict=True)]


def _host(column: Array) -> np.ndarray:
    return Device.to_host(column).astype(np.int64)


def _longer(device: Device, column: Array, n: int) -> Array:
    """Return a copy of `column` of `n` values; new ones are 0."""
    longer = device.zeros(n, np.int64)
    longer[: len(column)] = column
    return longer


def _sums(labels: np.ndarray, of: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the sum of `counts` for each of `labels`, which are in order: int64[k]."""
    return np.bincount(np.searchsorted(labels, of), weights=counts, minlength=len(labels)).astype(np.int64)


def _firsts(table: np.ndarray, row: int) -> np.ndarray:
    """Return the first column for each value of a row, which is in order."""
    first = np.ones(table.shape[1], bool)
    first[1:] = table[row, 1:] != table[row, :-1]
    return table[:, first]


def _columns(events: Events) -> dict[str, np.ndarray]:
    """Return the events as arrays, in the order of their names."""
    table = np.array(sorted(events, key=lambda event: event[1]), np.int64).reshape(-1, 5).T
    kinds = ("event", "name", "other", "before", "after")
    return {name: column.copy() for name, column in zip(kinds, table, strict=True)}


def _moves(table: np.ndarray) -> dict[str, np.ndarray]:
    """Return the vertices whose name changed, as arrays."""
    return dict(zip(("vertex", "origin", "target"), (column.copy() for column in table), strict=True))
