"""Descriptions in a store: its terms, the heads of its logs, and the graph that a recovery scan finds.

A *term* is one opening of a graph for writing, as in Raft: terms are numbered, and each one has its own logs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgraph.errors import StoreError
from mgraph.log.records import REMOVALS, WITHIN, Entry
from mgraph.log.scan import Scan

__all__ = ["BY_KEY", "FORMAT", "Head", "StoredGraph", "Term", "chosen", "described", "head_name", "term_of"]

FORMAT = 5  #: format of a new store, and the newest that is read
BY_KEY = 4  #: first format in which keys order the edges of one time in `window_edges`


@dataclass(frozen=True)
class Term:
    """An opening of a graph.

    Parameters
    ----------
    number, size : int
        `size` is the number of ranks.
    epoch : int
        The epoch at which it begins.
    sync : str
        "always" or "background".
    n_vertices : int or None
        The number of vertices with which it begins. Written if a change may belong to the epoch before the term, so
        that a scan notices if that change is missing.
    """

    number: int
    size: int
    epoch: int
    sync: str
    n_vertices: int | None = None

    @property
    def content(self) -> dict[str, Any]:
        """The description of the term, as JSON."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Head:
    """The newest term, as a rank knows it, and how far the rank's log was on the disk.

    Whatever a head names must be in the store. A head may be older than the store: it is written after what it names.

    Parameters
    ----------
    store : str
        The id of the store.
    term : Term
    rank : int
    synced : int
        The place up to which the rank's log was synced.
    epoch : int
        An epoch that all ranks had on their disks.
    """

    store: str
    term: Term
    rank: int
    synced: int
    epoch: int

    @classmethod
    def parse(cls, content: Mapping[str, Any], path: str, store: str) -> Head:
        """Read a head from its description; `StoreError` if it has another rank's name or is of another store."""
        head = cls(**{**content, "term": Term(**content["term"])})
        if path.rpartition("/")[2] != head_name(head.rank):
            raise StoreError(f"{path} is misnamed: it is {head_name(head.rank)}; restore both from a backup")
        if head.store != store:
            raise StoreError(f"{path} is of another store; restore it from a backup")
        return head

    @property
    def content(self) -> dict[str, Any]:
        """The description of the head, as JSON."""
        return {**vars(self), "term": self.term.content}

    @property
    def key(self) -> tuple[int, int]:
        """The number of the term, and the rank."""
        return self.term.number, self.rank


def head_name(rank: int) -> str:
    """Return the name of a rank's head file."""
    return f"head-{rank:04d}.json"


def term_of(name: str) -> int | None:
    """Return the number of the term with this folder; None for another folder."""
    match = re.fullmatch(r"term-(\d{6,})", name)
    return int(match[1]) if match else None


def described(kind: Mapping[str, Any], store: str) -> dict[str, Any]:
    """Return the description of a new store, for a graph of this kind."""
    return {"format": FORMAT, "id": store, **kind}


def chosen(snapshots: Sequence[dict[str, Any]], epoch: int | None) -> dict[str, Any] | None:
    """Return the newest snapshot at or before `epoch`; None without one.

    `snapshots` are ordered by epoch.
    """
    return next((about for about in reversed(snapshots) if epoch is None or about["epoch"] <= epoch), None)


@dataclass
class StoredGraph:
    """The graph in a store, up to an epoch or to its end.

    Attributes
    ----------
    about : dict
        The content of ``store.json``.
    epoch, n_vertices : int
        `n_vertices` is the largest number of vertices since the snapshot.
    left : int
        The number of vertices at `epoch`.
    last : str
        The kind of the last change.
    snapshot : dict or None
        The description of the snapshot to begin with.
    shares : list of tuple of Entry
        Per change after the snapshot, the records of all ranks.
    term : int
        The newest term that any file of the store names.
    unsynced : list of Scan
        The logs whose last segments may not be on the disk yet.
    notes : list of str
        What a repair gives up, in words.
    offsets : dict of str to int
        The last place in each source.
    damaged : list of str
        The descriptions of snapshots that a repair does without.
    aside : list of str
        The descriptions and folders of terms that a repair does without.
    """

    about: dict[str, Any]
    epoch: int
    n_vertices: int
    snapshot: dict[str, Any] | None = None
    shares: list[tuple[Entry, ...]] = field(default_factory=list)
    term: int = 0
    unsynced: list[Scan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    left: int = 0
    last: str = ""
    damaged: list[str] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)

    @property
    def summary(self) -> dict[str, Any]:
        """The part of it that a client needs."""
        return {name: getattr(self, name) for name in ("about", "epoch", "n_vertices", "notes", "last")}

    def add(self, changes: Sequence[tuple[Entry, ...]], epoch: int) -> None:
        """Append the changes that follow, up to `epoch`."""
        self.shares.extend(changes)
        self.epoch = epoch
        for shares in changes:
            self.left, self.last = _left(self.left, shares), shares[0].kind
            self.n_vertices = max(self.n_vertices, self.left)

    def place_of(self, epoch: int, n_vertices: int) -> int | None:
        """Return the number of changes after which the graph was at `epoch` with `n_vertices`; None if never.

        Changes within an epoch only remove vertices, so epoch and vertices identify the place.
        """
        at, left = self._start
        for place, shares in enumerate(self.shares):
            if (at, left) == (epoch, n_vertices):
                return place
            at, left = at + (shares[0].kind not in WITHIN), _left(left, shares)
        return len(self.shares) if (at, left) == (epoch, n_vertices) else None

    @property
    def _start(self) -> tuple[int, int]:
        """The epoch and the number of vertices before the changes."""
        start = self.snapshot or {"epoch": 0, "n_vertices": self.about["n_vertices"]}
        return start["epoch"], start["n_vertices"]

    @property
    def nbytes(self) -> int:
        """Bytes of the records."""
        return sum(entry.end - entry.place for shares in self.shares for entry in shares)


def _left(left: int, shares: Sequence[Entry]) -> int:
    """Return the number of vertices after a change; there were `left` before it."""
    gone = shares[0].n if shares[0].kind in REMOVALS else 0
    return max(left - gone, *(entry.vertices for entry in shares), 0)
