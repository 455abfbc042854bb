"""A graph that belongs to its workers: its shards stay when a client leaves, and the clients' calls take turns.

Rank 0 gives the *turn* to one client after another, in the order in which they ask. Only its holder makes calls, so all
ranks see the calls of all clients in one order. A turn that ended well leaves what its holder knew of the ranks, and
the next one goes on from there. A turn ends with its holder's comm, too. What it had under way is then not known, and
the next holder releases the ranks and has an interrupted vote decided, as one client does after a failed call.

The ranks tell the calls of a holder that is gone by their attempt. Turns that ended badly set the number so far ahead
that whatever comes late has a lower one, and is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mgraph.protocol import ShardState

__all__ = ["Published", "Turns"]

SPAN = 1 << 12  #: attempts that no holder makes in one turn

Value = dict[str, Any]


class _Asked(NamedTuple):
    """Who asked for a turn, as what, and how it is given."""

    who: object
    seq: int
    give: Callable[[Value], None]


class Turns:
    """Gives turns. On the event loop of rank 0's worker.

    Parameters
    ----------
    attempt : int
        The number of the current exchange.
    known : bytes or None
        What the last holder knew of the ranks; None where its turn ended badly.
    """

    def __init__(self, attempt: int, known: bytes | None) -> None:
        self._attempt, self._known = attempt, known
        self._holder: _Asked | None = None
        self._waiting: deque[_Asked] = deque()

    def ask(self, who: object, seq: int, give: Callable[[Value], None]) -> None:
        """Call `give` with the attempt and what is known once it is the turn of `who`."""
        self._waiting.append(_Asked(who, seq, give))
        self._next()

    def end(self, who: object, seq: int, attempt: int | None, known: bytes | None) -> None:
        """The turn `seq` of `who` has ended, or is not wanted any more; without an attempt, nothing was done in it."""
        self._waiting = deque(one for one in self._waiting if (one.who, one.seq) != (who, seq))
        if self._holder is not None and (self._holder.who, self._holder.seq) == (who, seq):
            if attempt is not None:
                self._attempt, self._known = attempt, known
            self._holder = None
            self._next()

    def leave(self, who: object) -> None:
        """The comm of `who` has closed."""
        self._waiting = deque(one for one in self._waiting if one.who is not who)
        if self._holder is not None and self._holder.who is who:
            self._attempt, self._known, self._holder = self._attempt + SPAN, None, None
            self._next()

    def _next(self) -> None:
        if self._holder is None and self._waiting:
            self._holder = self._waiting.popleft()
            self._holder.give({"attempt": self._attempt, "known": self._known})


@dataclass
class Published:
    """One rank's shard of a published graph. On the worker's event loop.

    Attributes
    ----------
    graph : str
    rank, size : int
    thread : ShardThread
    ended : asyncio.Event
        Set once the shard is freed.
    card : bytes
        What a client has to know that attaches.
    turns : Turns
        In use on rank 0.
    name : str or None
        None after `unpublish`: then the shard ends with its last session.
    sessions : set of Session
        Those that may call the shard.
    """

    graph: str
    rank: int
    size: int
    thread: Any
    ended: Any
    card: bytes
    turns: Turns
    name: str | None = None
    sessions: set[Any] = field(default_factory=set)

    def listing(self) -> Value:
        """What a listing says of it."""
        state: ShardState = self.thread.state
        return {
            "name": self.name, "graph": self.graph, "rank": self.rank, "size": self.size,
            "card": self.card if self.rank == 0 else b"", "clients": len(self.sessions), "epoch": state.epoch,
            "vertices": state.hi - state.lo, "edges": state.edges, "nbytes": state.nbytes,
        }  # fmt: skip
