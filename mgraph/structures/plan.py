"""What a structure hands out between preparing a change and committing it, and what a batch did."""

from __future__ import annotations

from dataclasses import dataclass
from operator import add
from typing import Any, NamedTuple

from mgraph.kernels import constants
from mgraph.structures.run import Run

__all__ = ["DELETED", "INSERTED", "UPDATED", "Counts", "Plan", "VerticesPlan"]

Array = Any
_OUTCOMES = constants("structures/outcome.cuh").enums["Outcome"]
INSERTED, UPDATED, DELETED = (_OUTCOMES.index(name) for name in ("inserted", "updated", "deleted"))


class Counts(NamedTuple):
    """Exactly what a batch did; of operations on one edge only the last counts.

    inserted + updated is how many inserts there were, deleted + missing how many deletes.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    missing: int = 0

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]  # a tuple's would join them
        return Counts(*map(add, self, other))


@dataclass
class Plan:
    """A prepared batch: its counts, which of its edges were there, and every allocation that its commit needs.

    Valid for one `commit` or `discard` of the structure that made it, and until that structure changes otherwise.

    Attributes
    ----------
    run : Run
    counts : Counts
    outcome : uint8[n] on the device
        What becomes of each key of the run: 0 overridden by an equal key after it, 1 inserted, 2 updated, 3 deleted,
        4 missing.
    work : object
        The structure's own; None once the plan was committed or discarded.
    state : object
        The structure's state that it was made for.
    scratch : object
        Memory that the structure may keep for the next batch.
    """

    run: Run
    counts: Counts
    outcome: Array
    work: Any
    state: object
    scratch: Any = None


@dataclass(frozen=True)
class VerticesPlan:
    """A prepared addition of vertices, with every allocation that its commit needs.

    Valid for one `commit_vertices` or `discard_vertices` of the structure that made it, and until that structure
    changes otherwise.

    Attributes
    ----------
    n_rows, n_vertices : int
        The structure's after the commit.
    work : dict of str to array
        The structure's own: its arrays after the commit. Emptied by commit and discard.
    state : object
        The structure's state that it was made for.
    """

    n_rows: int
    n_vertices: int
    work: dict[str, Array]
    state: object
