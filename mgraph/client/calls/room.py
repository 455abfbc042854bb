"""Whether the workers have memory for the arguments of a call. This is found out before they are sent.

A comm cannot refuse what it reads. So if a worker may have too little memory for a call, the client asks all workers
first. Each reserves the memory or says what is missing, and the arguments are sent only if all have reserved it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgraph.protocol import ShardState

__all__ = ["Load", "doubtful", "lack", "load_of"]

SMALL = 4 << 20  #: workers are not asked for up to this many bytes on the way to one of them
#: the bytes that a worker needs for an operation of an update beside its arguments, roughly. Measured on the CPU with
#: batches as large as the graph, over directions, weights and ops: gpma+ 20 to 180, graphvine 73 to 231, slabgraph 78
#: to 365
WORK = 240


class Load:
    """What a call sends to one worker.

    Parameters
    ----------
    nbytes : int
        The bytes of its arrays.
    operations : int
        The number of operations, if the call is an update.
    columns : bool
        Whether the operations have ops or weights.
    """

    def __init__(self, nbytes: int, operations: int = 0, columns: bool = False) -> None:
        self.nbytes, self.operations, self.columns = nbytes, operations, columns

    @property
    def most(self) -> int:
        """About how many bytes the call may need on the worker. If fewer are left there, the worker is asked."""
        return self.nbytes + WORK * self.operations

    def question(self) -> dict[str, Any]:
        """The arguments of the worker's call `reserve`."""
        return vars(self)


def load_of(method: str, args: Mapping[str, Any]) -> Load:
    """The load of a call's arguments."""
    operations = len(args["src"]) if method in ("update", "updates", "execute") and "src" in args else 0
    columns = method == "execute" or any(isinstance(args.get(name), np.ndarray) for name in ("op", "weight"))
    return Load(_nbytes(args), operations, columns)


def _nbytes(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(_nbytes(item) for item in value.values())
    return int(value.nbytes) if isinstance(value, np.ndarray) else len(value) if isinstance(value, bytes) else 0


def doubtful(loads: Sequence[Load], flying: Sequence[Sequence[Load]], states: Sequence[ShardState]) -> bool:
    """Whether a worker may have too little memory for its load beside those `flying`, by its last known state.

    Parameters
    ----------
    loads : sequence of Load
        The loads of a call, one for each rank.
    flying : sequence of sequences of Load
        The loads of calls that were sent and are not answered.
    states : sequence of ShardState
        The last state of each rank.
    """
    for rank, load in enumerate(loads):
        on_the_way = [load, *(others[rank] for others in flying)]
        large = sum(one.nbytes for one in on_the_way) > SMALL
        if large and sum(one.most for one in on_the_way) > states[rank].memory_left:
            return True
    return False


def lack(answers: Sequence[Mapping[str, Any]]) -> str | None:
    """The first reason for which a worker has refused to reserve memory, or None."""
    return next((answer["lack"] for answer in answers if answer["lack"]), None)
