"""Small batches of a pipeline that share a message to each rank. Each is an epoch of its own, and has its own report.

A message costs the client and a worker about as much time as it takes to apply 100 edges. So a small batch waits in a
queue while two messages are on their way, and what waits goes into the next one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from mgraph.batch import COLUMNS, TOLD
from mgraph.calls import CallSize
from mgraph.client.calls.caller import Flight, Value

__all__ = ["MOST", "SMALL", "WAITING", "BatchGroup", "Sender", "SmallBatch", "committed_counts", "layout"]

SMALL = 16 << 10  #: bytes of a batch up to which it shares messages
MOST = 64  #: batches in a message
WAITING = 256  #: batches that wait for a message; the user's thread waits before there are more

NONE = np.empty((0, len(TOLD)), np.int64)


class Sender(Protocol):
    """The pipeline that small batches belong to. All is called on the event loop."""

    def room(self, n: int, /) -> Callable[[], Awaitable[None]]:
        """A function that waits until `n` more bytes may be in flight, and raises if an earlier batch has failed."""

    def group_sent(self, group: BatchGroup, flight: Flight, epoch: int, /) -> None:
        """The group is on its way, and its first batch is to be `epoch`."""

    def group_refused(self, group: BatchGroup, error: BaseException, /) -> None:
        """The group was not sent."""


@dataclass(frozen=True)
class SmallBatch:
    """A small batch.

    Parameters
    ----------
    sender : Sender
    shares : list of dict
        One for each rank, with the columns of a batch.
    sizes : list of CallSize
        What is sent to each rank.
    batch : object
        The sender's own record of the batch.
    incarnation : int
        How often the graph had come back after a loss when the batch was posted.
    """

    sender: Sender
    shares: list[Value]
    sizes: list[CallSize]
    batch: Any
    incarnation: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes for all ranks."""
        return sum(size.nbytes for size in self.sizes)


def layout(shares: list[Value]) -> tuple[Any, ...] | None:
    """What batches have in common that share a message; None for a batch that has to go alone, as one with times."""
    share = shares[0]
    if share.keys() != set(COLUMNS) or not (type(share["src"]) is type(share["dst"]) is np.ndarray):
        return None
    if share["time"] is not None:
        return None
    optional = [share[name] for name in ("weight", "op")]
    return tuple(column if column is None or isinstance(column, int) else type(column) for column in optional)


@dataclass
class BatchGroup:
    """Small batches of one sender and one layout.

    Attributes
    ----------
    done : int64[k, 6]
        If the group failed, the counts of the batches that were committed before, in the order of `TOLD`.
    """

    items: list[SmallBatch]
    done: np.ndarray = field(default_factory=lambda: NONE)

    @property
    def nbytes(self) -> int:
        """Bytes of all batches."""
        return sum(item.nbytes for item in self.items)

    def shares(self) -> list[Value]:
        """Each rank's arguments of the call `updates`."""
        return [_joined([item.shares[rank] for item in self.items]) for rank in range(len(self.items[0].shares))]

    def sizes(self) -> list[CallSize]:
        """What the call `updates` sends to each rank."""
        by_rank = zip(*(item.sizes for item in self.items), strict=True)
        return [
            CallSize(sum(s.nbytes for s in sizes), sum(s.operations for s in sizes), sizes[0].columns)
            for sizes in by_rank
        ]


def _joined(shares: list[Value]) -> Value:
    sizes = np.array([len(share["src"]) for share in shares], np.int64)
    columns = {
        name: np.concatenate([share[name] for share in shares]) if isinstance(column, np.ndarray) else column
        for name, column in shares[0].items()
    }
    return {"sizes": sizes, **columns}


def committed_counts(outcomes: list[Any]) -> np.ndarray:
    """The counts of the batches of a group that all ranks have committed: int64[k, 6].

    Parameters
    ----------
    outcomes : list
        For each rank its answer to `updates`, the error, or None if there is no outcome.
    """
    counts = []
    for outcome in outcomes:
        failed = isinstance(outcome, BaseException)
        found = vars(outcome).get("done") if failed else outcome and outcome["counts"]
        if found is None:
            return NONE
        counts.append(np.asarray(found, np.int64).reshape(-1, len(TOLD)))
    least = min(map(len, counts))
    total: np.ndarray = np.sum([found[:least] for found in counts], axis=0)
    return total
