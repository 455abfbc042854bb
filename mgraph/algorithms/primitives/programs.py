"""Inboxes of programs that ranks run together."""

from __future__ import annotations

from mgraph.algorithms.algorithm import Shard
from mgraph.partition import Partition

__all__ = ["inbox_room"]

#: least messages from a rank to another between two meetings; vertices of a range per message
ROOM, ROOM_SHARE = 1 << 16, 8


def inbox_room(shard: Shard, partition: Partition | None = None) -> int:
    """Return the messages that an inbox holds in a program that sends the rest later.

    `partition` has other ranges than the shard's.
    """
    widest = (partition or shard.partition).widest
    return 0 if shard.size == 1 else min(widest, max(ROOM, widest // ROOM_SHARE))
