"""Inboxes of programs that ranks run together."""

from __future__ import annotations

from mgraph.algorithms.algorithm import Shard
from mgraph.partition import Partition

__all__ = ["inbox_room"]

#: messages that a rank may send to another between two meetings, at least; and for how many vertices of a range one
ROOM, ROOM_SHARE = 1 << 16, 8


def inbox_room(shard: Shard, partition: Partition | None = None) -> int:
    """Return the messages that an inbox holds in a program that sends the rest later.

    `partition` has other ranges than the shard's.
    """
    widest = (partition or shard.partition).widest
    return 0 if shard.size == 1 else min(widest, max(ROOM, widest // ROOM_SHARE))
