"""Groups of small batches, which share one call: on a cluster, one message per rank.

Each batch is an epoch with its own report. A message costs the client and a worker about as much time as applying 100
edges. So a small batch waits in a queue while two messages are on their way; the batches in the queue go into the next
message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from mgraph.batch import COLUMNS, TOLD
from mgraph.calls import CallSize
from mgraph.client.calls.caller import Flight, Value

__all__ = [
    "MOST", "SMALL", "WAITING", "BatchGroup", "Sender", "SmallBatch", "committed_counts", "first_group", "layout",
]  # fmt: skip

SMALL = 16 << 10  #: most bytes of a batch that shares messages
MOST = 64  #: batches per group
WAITING = 256  #: batches in the queue, above which the user's thread blocks

NONE = np.empty((0, len(TOLD)), np.int64)


class Sender(Protocol):
    """The pipeline that small batches belong to. Its methods are called on the event loop."""

    def room(self, n: int, /) -> Callable[[], Awaitable[None]]:
        """Return a coroutine function that waits for room for `n` more bytes in flight.

        It raises an error if an earlier batch has failed.
        """

    def group_sent(self, group: BatchGroup, flight: Flight, epoch: int, /) -> None:
        """Take note that the group was sent, its first batch as `epoch`."""

    def group_refused(self, group: BatchGroup, error: BaseException, /) -> None:
        """Take note that the group was not sent."""


@dataclass(eq=False, slots=True)  # frozen, it would take three times as long to make
class SmallBatch:
    """A small batch of a pipeline.

    Parameters
    ----------
    sender : Sender
    shares : list of dict
        The batch's columns, split into one share per rank, or whole for each.
    sizes : list of CallSize
        The size of each rank's message.
    layout : tuple
        The `layout` of its shares.
    batch : object
        The sender's own record of the batch.
    incarnation : int
        The graph's incarnation when the batch was posted.
    """

    sender: Sender
    shares: list[Value]
    sizes: list[CallSize]
    layout: tuple[Any, ...]
    batch: Any
    incarnation: int = 0


def layout(shares: list[Value]) -> tuple[Any, ...] | None:
    """Return the layout that batches in one message share; None if a batch must go alone, as one on a GPU."""
    share = shares[0]
    whole = "whole" in share
    if len(share) != len(COLUMNS) + whole or not (type(share.get("src")) is type(share.get("dst")) is np.ndarray):
        return None
    kinds: list[Any] = []
    for name in COLUMNS[2:]:
        column = share[name]
        array = type(column) is np.ndarray
        if not (array or column is None or isinstance(column, int)):
            return None
        kinds.append(np.ndarray if array else column)
    return whole, *kinds


@dataclass
class BatchGroup:
    """Small batches that share a sender and a layout.

    Attributes
    ----------
    done : int64[k, 6]
        If the group failed, the counts of the batches that were committed before, in the order of `TOLD`.
    """

    items: list[SmallBatch]
    done: np.ndarray = field(default_factory=lambda: NONE)

    @cached_property
    def sizes(self) -> list[CallSize]:
        """The size of the call `updates` for each rank."""
        by_rank = zip(*(item.sizes for item in self.items), strict=True)
        return [
            CallSize(sum([s.nbytes for s in sizes]), sum([s.operations for s in sizes]), sizes[0].columns)
            for sizes in by_rank
        ]

    @cached_property
    def nbytes(self) -> int:
        """The bytes of all batches, for all ranks."""
        return sum(size.nbytes for size in self.sizes)

    def shares(self) -> list[Value]:
        """Return each rank's arguments of the call `updates`."""
        size = len(self.items[0].shares)
        if "whole" in self.items[0].shares[0]:
            return [_joined([item.shares[0] for item in self.items])] * size
        return [_joined([item.shares[rank] for item in self.items]) for rank in range(size)]


def first_group(waiting: deque[SmallBatch]) -> BatchGroup:
    """Return the first batches of a queue that can share a call; they stay in the queue."""
    # One by one: another thread may append, which an iterator refuses.
    items = [waiting[i] for i in range(min(len(waiting), MOST))]
    first = items[0]
    different = (i for i, item in enumerate(items) if item.sender is not first.sender or item.layout != first.layout)
    return BatchGroup(items[: next(different, MOST)])


def _joined(shares: list[Value]) -> Value:
    sizes = np.array([len(share["src"]) for share in shares], np.int64)
    columns = {
        name: np.concatenate([share[name] for share in shares]) if isinstance(column, np.ndarray) else column
        for name, column in shares[0].items()
    }
    return {"sizes": sizes, **columns}


def committed_counts(outcomes: list[Any]) -> np.ndarray:
    """Return the counts of batches that all ranks committed: int64[k, 6].

    Parameters
    ----------
    outcomes : list
        Each rank's answer to `updates`, its error, or None without an outcome.
    """
    counts = []
    for outcome in outcomes:
        failed = isinstance(outcome, BaseException)
        rank_counts = vars(outcome).get("done") if failed else outcome and outcome["counts"]
        if rank_counts is None:
            return NONE
        counts.append(np.asarray(rank_counts, np.int64).reshape(-1, len(TOLD)))

    # Ranks may have stopped at different batches: only the common prefix is committed.
    if len(counts) == 1:
        return counts[0]
    least = min(map(len, counts))
    total: np.ndarray = np.sum([rows[:least] for rows in counts], axis=0)
    return total
