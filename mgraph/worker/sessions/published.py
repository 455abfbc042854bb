"""Published graphs: shards that outlive their client's session, and the lock of their clients.

Rank 0 gives the lock to one client after another, in the order of their requests. Only its holder makes calls, so all
ranks see the calls of all clients in the same order. A holder that releases the lock passes its view of the ranks on to
the next one. The lock is also released when the holder's comm closes. The state of its last call is then unknown: the
next holder aborts the ranks' waits and settles an interrupted vote, as a single client does after a failed call.

The ranks recognize late calls of a lost holder by their attempt: such a release increments the number so much that they
have a lower one, and are refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mgraph.protocol import ShardState

__all__ = ["LockQueue", "Published", "PublishedShards"]

SPAN = 1 << 12  #: attempt numbers per holder, more than it uses

Value = dict[str, Any]


class _LockRequest(NamedTuple):
    """Client of a request, its number, and the callbacks that grant the lock and ask for it back."""

    who: object
    seq: int
    give: Callable[[Value], None]
    want: Callable[[], None]


class LockQueue:
    """Fair lock of a published graph. Used on the event loop of rank 0's worker.

    A holder may keep the lock between two calls, until it is asked for it.

    Parameters
    ----------
    attempt : int
        The number of the current exchange.
    known : bytes or None
        The last holder's view of the ranks; None if it was lost.
    """

    def __init__(self, attempt: int, known: bytes | None) -> None:
        self._attempt, self._known = attempt, known
        self._holder: _LockRequest | None = None
        self._waiting: deque[_LockRequest] = deque()

    def ask(self, who: object, seq: int, give: Callable[[Value], None], want: Callable[[], None]) -> None:
        """Queue a request; `give` is called with attempt and view once it is granted, `want` once others wait."""
        self._waiting.append(_LockRequest(who, seq, give, want))
        if self._holder is not None and len(self._waiting) == 1:
            self._holder.want()
        self._next()

    def end(self, who: object, seq: int, attempt: int | None, known: bytes | None) -> None:
        """Release the lock of request `seq`, or withdraw it. Without an attempt, no call was made."""
        self._waiting = deque(request for request in self._waiting if (request.who, request.seq) != (who, seq))
        if self._holder is not None and (self._holder.who, self._holder.seq) == (who, seq):
            if attempt is not None:
                self._attempt, self._known = attempt, known
            self._holder = None
            self._next()

    def leave(self, who: object) -> None:
        """Withdraw all requests of a closed comm; release its lock as lost."""
        self._waiting = deque(request for request in self._waiting if request.who is not who)
        if self._holder is not None and self._holder.who is who:
            self._attempt, self._known, self._holder = self._attempt + SPAN, None, None
            self._next()

    def _next(self) -> None:
        if self._holder is None and self._waiting:
            self._holder = self._waiting.popleft()
            self._holder.give({"attempt": self._attempt, "known": self._known})
            if self._waiting:
                self._holder.want()


@dataclass
class Published:
    """Shard of a published graph. Used on the worker's event loop.

    Attributes
    ----------
    graph : str
    rank, size : int
    thread : ShardThread
    ended : asyncio.Event
        Set once the shard is freed.
    card : bytes
        Description for clients that attach.
    lock : LockQueue
        Used on rank 0.
    name : str or None
        None after `unpublish`: then the shard ends with its last session.
    sessions : set of Session
        The sessions that may call the shard.
    """

    graph: str
    rank: int
    size: int
    thread: Any
    ended: Any
    card: bytes
    lock: LockQueue
    name: str | None = None
    sessions: set[Any] = field(default_factory=set)

    def listing(self) -> Value:
        """Return the entry of this shard in a listing."""
        state: ShardState = self.thread.state
        return {
            "name": self.name, "graph": self.graph, "rank": self.rank, "size": self.size,
            "card": self.card if self.rank == 0 else b"", "clients": len(self.sessions), "epoch": state.epoch,
            "vertices": state.hi - state.lo, "edges": state.edges, "nbytes": state.nbytes,
        }  # fmt: skip


class PublishedShards(dict[tuple[str, int], Published]):
    """Shards of a worker's published graphs, and of unpublished ones with open sessions, by graph and rank.

    Attributes
    ----------
    closed : bool
        True once the worker closes: each shard then ends with the next session that leaves it.
    """

    closed = False

    def named(self, name: str) -> Published | None:
        """Return the shard published under a name, or None."""
        return next((shard for shard in self.values() if shard.name == name), None)

    def leave(self, published: Published, session: Any) -> bool:
        """Remove a session from a published shard. Returns True if the shard ends with it."""
        published.sessions.discard(session)
        published.lock.leave(session)
        over = published.ended.is_set() or self.closed or (published.name is None and not published.sessions)
        if over:
            self.pop((published.graph, published.rank), None)
        return over

    def listed(self, end: str | None) -> list[dict[str, Any]]:
        """Return the published graphs. The graph named `end` is withdrawn first, and ends with its last session."""
        for key, shard in list(self.items()):
            if shard.name == end:
                shard.name = None
                if not shard.sessions:
                    shard.thread.stop()
                    del self[key]
        return [shard.listing() for shard in self.values() if shard.name is not None and not shard.ended.is_set()]
