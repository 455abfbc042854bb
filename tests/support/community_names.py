"""A slow model of the names of communities, by sets of vertices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

__all__ = ["Event", "NamesModel", "parts"]

Event = tuple[str, int, int | None, int, int]  #: kind, name, the other's name, size before, size after


def parts(labels: np.ndarray) -> list[frozenset[int]]:
    """The communities, by their least vertices."""
    return [frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)]


class NamesModel:
    """The rule of names, word by word.

    Each old community offers its name to the new community with most of its members, of several to the one with the
    least vertex. The offer of the most members wins, of equal ones that of the old community with the least vertex.
    """

    def __init__(self) -> None:
        self.next = 0
        self.members: dict[int, set[int]] | None = None  # of each name, those that are still in the graph
        self.sizes: dict[int, int] = {}  # of each name at the last read
        self.names: dict[int, int] = {}  # of each vertex

    def keep(self, vertices: Iterable[int]) -> None:
        """Only these are still in the graph; their numbers stay."""
        assert self.members is not None
        self.members = {name: members & set(vertices) for name, members in self.members.items()}

    def remove(self, gone: Iterable[int], new: dict[int, int]) -> None:
        """Vertices leave the graph; `new` are the numbers of the others."""
        assert self.members is not None
        gone = set(gone)
        self.members = {name: {new[v] for v in members - gone} for name, members in self.members.items()}

    def read(
        self, communities: list[frozenset[int]], number: Callable[[int], int] = lambda vertex: vertex
    ) -> list[Event]:
        """Name the communities; what happened, by name. `number` has the numbers that decide between equals."""

        def least(vertices: Iterable[int]) -> int:
            return min(map(number, vertices))

        old, events, named = self.members, list[Event](), dict[frozenset[int], int]()
        if old is not None:
            offers: dict[frozenset[int], list[int]] = {}
            for name, members in old.items():
                if not members:
                    events.append(("died", name, None, self.sizes[name], 0))
                    continue
                target = max(communities, key=lambda c: (len(c & members), -least(c)))
                offers.setdefault(target, []).append(name)
            for target, names in offers.items():
                named[target] = max(names, key=lambda name: (len(target & old[name]), -least(old[name])))
                for name in names:
                    if name != named[target]:
                        events.append(("merged into", name, named[target], self.sizes[name], 0))
        for community in sorted(communities, key=least):
            if community not in named:
                named[community], self.next = self.next, self.next + 1
                most = [name for name, members in (old or {}).items() if 2 * len(members & community) > len(community)]
                kind = ("split from", most[0]) if most else ("born", None)
                if old is not None:
                    events.append((kind[0], named[community], kind[1], 0, len(community)))
                continue
            name, size = named[community], len(community)
            assert old is not None
            if old[name] != community or self.sizes[name] != size:
                before = self.sizes[name]
                kind = "grown" if size > before else "shrunk" if size < before else "changed"
                events.append((kind, name, None, before, size))
        self.members = {name: set(community) for community, name in named.items()}
        self.sizes = {name: len(community) for community, name in named.items()}
        self.names = {v: name for community, name in named.items() for v in community}
        return sorted(events, key=lambda event: event[1])
