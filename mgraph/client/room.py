"""Whether the workers have room for what a call sends them: when a comm reads it, nobody can refuse it any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgraph.protocol import ShardState

__all__ = ["Load", "doubtful", "lack", "load_of"]

SMALL = 4 << 20  #: bytes on the way to one worker up to which nobody is asked
#: about how many bytes an operation of an update takes on a worker beside what is sent; measured on the CPU with
#: batches as large as the graph, over directions, weights and ops: gpma+ 20 to 180, graphvine 73 to 231, slabgraph 78
#: to 365
WORK = 240


class Load:
    """What a call brings to one worker.

    Parameters
    ----------
    nbytes : int
        Of the arrays that are sent.
    operations : int
        Of an update.
    columns : bool
        Whether they have ops or weights.
    """

    def __init__(self, nbytes: int, operations: int = 0, columns: bool = False) -> None:
        self.nbytes, self.operations, self.columns = nbytes, operations, columns

    @property
    def most(self) -> int:
        """Bytes that it may take there, about: past these the worker is asked."""
        return self.nbytes + WORK * self.operations

    def question(self) -> dict[str, Any]:
        """What the worker is asked."""
        return vars(self)


def load_of(method: str, args: Mapping[str, Any]) -> Load:
    """The load of a call's arguments."""
    operations = len(args["src"]) if method == "update" and "src" in args else 0
    columns = any(isinstance(args.get(name), np.ndarray) for name in ("op", "weight"))
    return Load(_nbytes(args), operations, columns)


def _nbytes(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(_nbytes(item) for item in value.values())
    return int(value.nbytes) if isinstance(value, np.ndarray) else len(value) if isinstance(value, bytes) else 0


def doubtful(loads: Sequence[Load], flying: Sequence[Sequence[Load]], states: Sequence[ShardState]) -> bool:
    """Whether a worker may have no room for its load beside those `flying`, by what it last said of itself."""
    for rank, load in enumerate(loads):
        on_the_way = [load, *(others[rank] for others in flying)]
        large = sum(one.nbytes for one in on_the_way) > SMALL
        if large and sum(one.most for one in on_the_way) > states[rank].memory_left:
            return True
    return False


def lack(answers: Sequence[Mapping[str, Any]]) -> str | None:
    """Why a worker has no room, by the answers to the question."""
    return next((answer["lack"] for answer in answers if answer["lack"]), None)
