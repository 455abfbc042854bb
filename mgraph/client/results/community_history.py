"""The history of maintained communities: which were born, died, merged, split, grew or shrank at each read."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.algorithms.communities.dynamic.names import EVENTS, NONE
from mgraph.checks import check_whole
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import InvalidOption
from mgraph.tables.texts import arrow

__all__ = ["CommunityChanges", "CommunityHistory"]


@dataclass(frozen=True)
class CommunityChanges:
    """The changes of maintained communities, as ``pyarrow.Table``.

    Attributes
    ----------
    communities : pyarrow.Table
        An event per row: `epoch`, that of the read; `event`, "born", "died", "merged into", "split from", "grown",
        "shrunk", "changed" for other members of the same number, or "lost"; `name`; `other`, the name of the community
        that it merged into or split from, null for other events; and the sizes `before` and `after`. A row "lost" has
        nothing else: after a crash, the reads before this one are lost up to the last one that the store has, and the
        other rows of the epoch have the changes since that.
    vertices : pyarrow.Table
        A vertex per row whose community has another name: `epoch`, `vertex`, a key in a graph with keys, `from`, null
        for a new vertex, and `to`.
    """

    communities: Any
    vertices: Any


@dataclass(frozen=True)
class _Read:
    """Changes at a read: columns of events, and of vertices, in users' names."""

    epoch: int
    events: tuple[np.ndarray, ...]
    vertices: Any
    names: tuple[np.ndarray, np.ndarray]


class CommunityHistory:
    """Changes of communities at the last reads with changes.

    Parameters
    ----------
    limit : int
        The largest number of such reads.

    Attributes
    ----------
    first : int or None
        The epoch of the read from which on all changes are held; None before the first read.
    next : int
        A name that no community has had, nor any larger.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.first: int | None = None
        self.next = 0
        self._last: int | None = None
        self._texts = False  # True if the vertices have strings as keys
        self._reads: deque[_Read] = deque()

    def note(self, passed: Mapping[str, Any], epoch: int, numbering: Numbering) -> None:
        """Note the changes that rank 0 sent with a read.

        After a gap, the history begins anew. With names from a store it goes on from their read.
        """
        since, resumed = passed["since"], passed["resumed"]
        whole = since is not None and (since == self._last or resumed)
        vertices = numbering.names(passed["vertex"])
        self._texts = vertices.dtype == object
        if since != self._last or not whole:
            self._go_back(since if whole else epoch, keep=whole)
        if whole and (len(passed["event"]) or len(passed["vertex"])):
            events = tuple(passed[name] for name in ("event", "name", "other", "before", "after"))
            self._reads.append(_Read(epoch, events, vertices, (passed["origin"], passed["target"])))
            while len(self._reads) > self.limit:
                self.first = self._reads.popleft().epoch
        self._last, self.next = epoch, passed["next"]

    def _go_back(self, epoch: int, keep: bool) -> None:
        """Begin the history at `epoch`; `keep` the reads up to it, if it was one of them."""
        if not keep or self.first is None or self._last is None or not self.first <= epoch <= self._last:
            self._reads.clear()
            self.first = epoch
        while self._reads and self._reads[-1].epoch > epoch:
            self._reads.pop()

    def since(self, epoch: Any) -> CommunityChanges:
        """Return the changes at the reads after `epoch`.

        Raises
        ------
        InvalidOption
            The history begins later, or the last read was before `epoch`.
        """
        epoch = check_whole(epoch, "since")
        if self.first is None or self._last is None or epoch < self.first:
            raise InvalidOption(
                f"since is {epoch}; the history of these communities begins at epoch {self.first}. "
                f"maintain(..., history={2 * self.limit}) keeps more than {self.limit} reads"
            )
        if epoch > self._last:
            raise InvalidOption(f"since is {epoch}; the last read was at epoch {self._last}: call result() first")
        return _tables([read for read in self._reads if read.epoch > epoch], self._texts)


def _tables(reads: list[_Read], texts: bool) -> CommunityChanges:
    """Return the changes at `reads` as tables, with vertices as `texts` or numbers."""
    pa = arrow()

    def column(parts: list[np.ndarray], null: bool = False) -> Any:
        values = np.concatenate([np.empty(0, np.int64), *parts])
        return pa.array(values, mask=values == NONE if null else None)

    epochs = [np.full(len(read.events[0]), read.epoch) for read in reads]
    codes, names, others, before, after = ([read.events[i] for read in reads] for i in range(5))
    kinds = pa.array(EVENTS).take(column(codes))
    communities = {"epoch": column(epochs), "event": kinds}
    for name, parts in (("name", names), ("other", others), ("before", before), ("after", after)):
        communities[name] = column(parts, null=True)

    epochs = [np.full(len(read.names[0]), read.epoch) for read in reads]
    kind = pa.string() if texts else pa.int64()
    vertices = pa.concat_arrays([pa.array([], kind), *(pa.array(read.vertices, kind) for read in reads)])
    moved = {"epoch": column(epochs), "vertex": vertices, "from": column([read.names[0] for read in reads], null=True)}
    moved |= {"to": column([read.names[1] for read in reads])}
    return CommunityChanges(pa.table(communities), pa.table(moved))
