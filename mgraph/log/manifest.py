"""What a store says of itself: the terms of its logs, and what a survey of it finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgraph.log.records import REMOVALS, Entry

__all__ = ["FORMAT", "PLAIN", "StoredGraph", "Term", "chosen", "described"]

FORMAT = 3  #: of the files of a store, at most
PLAIN = 2  #: of a store without changes that belong to an epoch before them


@dataclass(frozen=True)
class Term:
    """One opening of a graph.

    Parameters
    ----------
    number, size : int
        `size` is the number of ranks.
    epoch : int
        The epoch at which it begins.
    sync : str
        See `mgraph.log.log`.
    n_vertices : int or None
        The number of vertices with which it begins. It is written where a change may belong to the epoch before it,
        so that it is seen if such a change is missing at the end of a log.
    """

    number: int
    size: int
    epoch: int
    sync: str
    n_vertices: int | None = None

    @property
    def content(self) -> dict[str, Any]:
        """As it is written."""
        return {name: value for name, value in vars(self).items() if value is not None}


def described(kind: Mapping[str, Any], store: str) -> dict[str, Any]:
    """The description of a new store with this id, of a graph of this kind."""
    return {"format": FORMAT if kind.get("drop_isolated") else PLAIN, "id": store, **kind}


def chosen(snapshots: Sequence[dict[str, Any]], epoch: int | None) -> dict[str, Any] | None:
    """The newest of some snapshots, ordered by epoch, at `epoch` or before it; None without one."""
    return next((one for one in reversed(snapshots) if epoch is None or one["epoch"] <= epoch), None)


@dataclass
class StoredGraph:
    """What a store holds, up to an epoch or to its end.

    Attributes
    ----------
    about : dict
        The content of ``store.json``.
    epoch, n_vertices : int
        `n_vertices` is the most that there were, after the snapshot.
    left : int
        The number of vertices at `epoch`.
    last : str
        The kind of the last change.
    snapshot : dict or None
        The description of the snapshot to begin with.
    shares : list of tuple of Entry
        For each change after the snapshot the records of the ranks that wrote it.
    term : int
        The last term.
    tails : list of str
        The segments that may not be on the disk yet as they were read.
    notes : list of str
        What a repair gives up.
    offsets : dict of str to int
        The last place in each source.
    damaged : list of str
        The descriptions of snapshots that a repair does without.
    """

    about: dict[str, Any]
    epoch: int
    n_vertices: int
    snapshot: dict[str, Any] | None = None
    shares: list[tuple[Entry, ...]] = field(default_factory=list)
    term: int = 0
    tails: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    left: int = 0
    last: str = ""
    damaged: list[str] = field(default_factory=list)

    @property
    def told(self) -> dict[str, Any]:
        """What the client is told of it."""
        return {name: getattr(self, name) for name in ("about", "epoch", "n_vertices", "notes", "last")}

    def add(self, changes: Sequence[tuple[Entry, ...]], epoch: int) -> None:
        """Changes that follow, up to an epoch."""
        self.shares.extend(changes)
        self.epoch = epoch
        for shares in changes:
            gone = shares[0].n if shares[0].kind in REMOVALS else 0
            self.left, self.last = max(self.left - gone, *(entry.vertices for entry in shares), 0), shares[0].kind
            self.n_vertices = max(self.n_vertices, self.left)

    @property
    def nbytes(self) -> int:
        """Bytes of the records."""
        return sum(entry.end - entry.place for shares in self.shares for entry in shares)
