"""Admission control: the workers keep memory for the arguments of a call before these are sent.

A comm cannot refuse a message. So if a worker may have too little memory for a call, the client asks all workers
first. Each reserves the memory or says what is missing, and the arguments are sent only if all have reserved it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mgraph.calls import CallSize
from mgraph.protocol import ShardState

__all__ = ["SMALL", "WORK", "may_lack_memory", "most_bytes", "refusal"]

SMALL = 4 << 20  #: bytes in flight to a worker up to which no admission is asked
#: bytes that a worker needs per operation of an update beside its arguments, roughly. Measured on the CPU with batches
#: as large as the graph, over directions, weights and ops: gpma+ 20 to 180, graphvine 73 to 231, slabgraph 78 to 365
WORK = 240


def may_lack_memory(
    sizes: Sequence[CallSize], flying: Sequence[Sequence[CallSize]], states: Sequence[ShardState]
) -> bool:
    """Return True if a worker may have too little memory for a call, by its last known state.

    Parameters
    ----------
    sizes : sequence of CallSize
        The call's size for each rank.
    flying : sequence of sequences of CallSize
        The sizes of calls in flight.
    states : sequence of ShardState
        The last state of each rank.
    """
    for rank, own in enumerate(sizes):
        in_flight = [own, *(others[rank] for others in flying)]
        large = sum(size.nbytes for size in in_flight) > SMALL
        if large and sum(map(most_bytes, in_flight)) > states[rank].memory_left:
            return True
    return False


def most_bytes(size: CallSize) -> int:
    """Return about the most bytes that a call may need on its worker. If fewer are left, the worker is asked first."""
    return size.nbytes + WORK * size.operations


def refusal(answers: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why a worker refused to reserve memory; None if all accepted."""
    return next((answer["lack"] for answer in answers if answer["lack"]), None)
