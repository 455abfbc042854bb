"""Names of communities, which pass from one read to the next, and are never used again.

Each old community offers its name to the new community that holds most of its members, of several with equally many to
the one with the least vertex. Of several offers to a community the one of the most common members wins, of equal ones
that of the old community with the least vertex. Communities whose offers lost have merged into the winner. A new
community without an offer has a new name: it is split from an old one if more than half of its members come from there,
else it is born.

All is kept by users' ids, and a community is labelled by its least vertex, so that neither ranges nor the order of the
vertices matter. Every rank computes the same. Only communities whose members changed are looked at one by one, on the
host.
"""

from __future__ import annotations

import numpy as np

from mgraph.device import Array, Device

__all__ = ["EVENTS", "Names"]

#: what happens to a community, by its code
EVENTS = ("born", "died", "merged into", "split from", "grown", "shrunk", "changed")
BORN, DIED, MERGED, SPLIT, GROWN, SHRUNK, CHANGED = range(len(EVENTS))
NONE = -1  #: no other community; a vertex that had none

Events = list[tuple[int, int, int, int, int]]


class Names:
    """Names of the communities at the last read.

    Attributes
    ----------
    next : int
        The next name.
    labels : uint32[n]
        The least vertex of each vertex's community, by users' ids.
    names, sizes : int64[n]
        The name of each community and its number of members at the last read, by its label.
    gone : list of (name, size)
        Communities of which all vertices were removed since.
    passed : dict
        What the last read changed, in arrays. Events: `event`, a place in `EVENTS`, `name`, `other`, `before` and
        `after`, the sizes. Vertices whose name changed, by users' ids: `vertex`, `origin`, `target`.
    """

    def __init__(self, first_name: int = 0) -> None:
        self.next = first_name
        self.labels: Array = None
        self.names: Array = None
        self.sizes: Array = None
        self.gone: list[tuple[int, int]] = []
        self.passed: dict[str, np.ndarray] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return sum(int(a.nbytes) for a in (self.labels, self.names, self.sizes) if a is not None)

    def of(self, labels: Array) -> Array:
        """Return the names of communities by their labels: int64[k]."""
        return self.names[labels]

    def remove(self, device: Device, ids: np.ndarray) -> None:
        """Forget users' `ids`, whose vertices are removed. Later ids move up."""
        if self.labels is None:
            return
        # Label the communities by the least of the vertices that stay.
        labels, names, sizes = (Device.to_host(a) for a in (self.labels, self.names, self.sizes))
        kept = np.delete(np.arange(len(labels)), ids)
        old, places = labels[kept], np.arange(len(kept), dtype=np.uint32)
        least = np.full(len(labels), 2**32 - 1, np.uint32)
        least[old[::-1]] = places[::-1]
        was = np.flatnonzero(labels == np.arange(len(labels)))
        empty = was[least[was] == 2**32 - 1]
        self.gone += list(zip(names[empty].tolist(), sizes[empty].tolist(), strict=True))

        # Move names and sizes to the new labels.
        was = was[least[was] < 2**32 - 1]
        columns = []
        for column in (names, sizes):
            moved = np.full(len(kept), NONE, np.int64)
            moved[least[was]] = column[was]
            columns.append(device.asarray(moved))
        self.names, self.sizes = columns
        self.labels = device.asarray(least[old])

    def pass_on(self, device: Device, labels: Array) -> None:
        """Name the communities of `labels`, uint32[n] by users' ids, and write what changed to `passed`."""
        # Name all communities at the first read.
        xp, n = device.xp, len(labels)
        sizes = xp.bincount(labels, minlength=n).astype(np.int64)
        communities = xp.flatnonzero(sizes)
        names = device.full(n, NONE, np.int64)
        if self.labels is None:
            names[communities] = xp.arange(self.next, self.next + len(communities))
            self.next += len(communities)
            self.labels, self.names, self.sizes = labels, names, sizes
            self.passed = {**_columns([]), **_moves(np.empty((3, 0), np.int64))}
            return

        # The image of an old community is the new one of its least vertex. Count the members that are elsewhere.
        before = len(self.labels)
        old = xp.flatnonzero(self.labels == device.arange(0, before, np.uint32))
        here = labels[:before]
        elsewhere = xp.flatnonzero(device.gather(labels, self.labels) != here)
        keys, counts = xp.unique(
            self.labels[elsewhere].astype(np.uint64) << np.uint64(32) | here[elsewhere], return_counts=True
        )
        alive = xp.bincount(self.labels, minlength=before)[old]
        image = labels[old].astype(np.int64)

        # A community alone with its image passes its name on.
        keys, counts = Device.to_host(keys), Device.to_host(counts)
        sources, targets = (keys >> np.uint64(32)).astype(np.int64), (keys & np.uint64(2**32 - 1)).astype(np.int64)
        mixed = xp.bincount(image, minlength=n) > 1
        mixed[device.asarray(targets)] = True
        mixed[labels[device.asarray(sources)]] = True
        mixed = mixed[image]
        plain = xp.flatnonzero(~mixed)
        names[image[plain]] = self.names[old[plain]]
        differ = plain[(self.sizes[old[plain]] != alive[plain]) | (sizes[image[plain]] != alive[plain])]

        # The others make offers.
        rows = xp.flatnonzero(mixed)
        old_rows, images, members = (Device.to_host(a[rows]).astype(np.int64) for a in (old, image, alive))
        lost = np.zeros(before, np.int64)
        np.add.at(lost, sources, counts)
        members = members - lost[old_rows]
        table = np.array(
            [np.concatenate(columns) for columns in ((old_rows, sources), (images, targets), (members, counts))]
        )
        events: Events = [(DIED, name, NONE, size, 0) for name, size in self.gone]
        events += self._offers(device, table, names, sizes, differ, old, image)

        # New communities get new names.
        self._found(device, table, communities, names, sizes, events)

        # List the vertices whose name changed.
        was = device.full(n, NONE, np.int64)
        was[:before] = self.names[self.labels]
        now = names[labels]
        vertices = xp.flatnonzero(was != now)
        moves = np.array([Device.to_host(a).astype(np.int64) for a in (vertices, was[vertices], now[vertices])])
        self.labels, self.names, self.sizes, self.gone = labels, names, sizes, []
        self.passed = {**_columns(events), **_moves(moves)}

    def _offers(
        self, device: Device, table: np.ndarray, names: Array, sizes: Array, differ: Array, old: Array, image: Array
    ) -> Events:
        """Pass names on by the offers of `table`, rows of old label, new label and common members.

        Returns the events of communities that pass their names on or merge; `differ` are places in `old` and `image` of
        those that made no offer, and have other members now.
        """
        # Each old community chooses; each new one takes an offer.
        table = table[:, table[2] > 0]
        order = np.lexsort((table[1], -table[2], table[0]))
        offers = _firsts(table[:, order], 0)
        order = np.lexsort((offers[0], -offers[2], offers[1]))
        offers = offers[:, order]
        taken = _firsts(offers, 1)
        own = Device.to_host(self.names[device.asarray(taken[0])])
        names[device.asarray(taken[1])] = device.asarray(own)

        # Losers merge.
        won = set(taken[0].tolist())
        name_of = dict(zip(taken[1].tolist(), own.tolist(), strict=True))
        lost = offers[:, [i for i, a in enumerate(offers[0].tolist()) if a not in won]]
        gone = (Device.to_host(column[device.asarray(lost[0])]).tolist() for column in (self.names, self.sizes))
        events: Events = [
            (MERGED, name, name_of[target], size, 0) for name, size, target in zip(*gone, lost[1].tolist(), strict=True)
        ]

        # Winners may have other members.
        a = np.concatenate([taken[0], Device.to_host(old[differ])])
        b = np.concatenate([taken[1], Device.to_host(image[differ])])
        common = np.concatenate([taken[2], np.full(len(differ), NONE)])
        name, before = (Device.to_host(column[device.asarray(a)]) for column in (self.names, self.sizes))
        after = Device.to_host(sizes[device.asarray(b)])
        other_members = (before != after) | (common != before)
        for one, size, size_now in zip(*(c[other_members].tolist() for c in (name, before, after)), strict=True):
            kind = GROWN if size_now > size else SHRUNK if size_now < size else CHANGED
            events.append((kind, one, NONE, size, size_now))
        return events

    def _found(
        self, device: Device, table: np.ndarray, communities: Array, names: Array, sizes: Array, events: Events
    ) -> None:
        """Give new names to communities without one, and add their events."""
        new = Device.to_host(communities[names[communities] == NONE])
        fresh = np.arange(self.next, self.next + len(new))
        self.next += len(new)
        names[device.asarray(new)] = device.asarray(fresh)
        size = dict(zip(new.tolist(), Device.to_host(sizes[device.asarray(new)]).tolist(), strict=True))
        origin: dict[int, int] = {}
        for a, b, members in table.T.tolist():
            if b in size and 2 * members > size[b]:
                origin[b] = a
        sources = device.asarray(np.array([*origin.values()], np.int64))
        names_of = dict(zip(origin, Device.to_host(self.names[sources]).tolist(), strict=True))
        for label, name in zip(new.tolist(), fresh.tolist(), strict=True):
            other = names_of.get(label, NONE)
            events.append((BORN if other == NONE else SPLIT, name, other, 0, size[label]))


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
