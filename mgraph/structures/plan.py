"""Plans of changes between prepare and commit, and counts of batches."""

from __future__ import annotations

from dataclasses import dataclass
from operator import add
from typing import Any, NamedTuple

from mgraph.kernels import constants
from mgraph.structures.run import Run

__all__ = ["DELETED", "INSERTED", "NO_COUNTS", "UPDATED", "Counts", "Plan", "VerticesPlan"]

Array = Any
_OUTCOMES = constants("structures/outcome.cuh").enums["Outcome"]
INSERTED, UPDATED, DELETED = (_OUTCOMES.index(name) for name in ("inserted", "updated", "deleted"))


class Counts(NamedTuple):
    """Exact outcomes of a batch; of repeated edges only the last counts.

    inserted + updated is the number of inserts, deleted + missing the number of deletes.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    missing: int = 0

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]  # a tuple's would join them
        return Counts(*map(add, self, other))


NO_COUNTS = Counts()  #: counts of a run without operations


@dataclass(slots=True, eq=False)
class Plan:
    """Prepared batch: counts, outcomes, and all memory for its commit.

    Valid for one `commit` or `discard` of its structure, unless that changes before.

    Attributes
    ----------
    run : Run
    counts : Counts
    outcome : uint8[n] on the device
        The outcome of each key of the run: 0 overridden by an equal key after it, 1 inserted, 2 updated, 3 deleted,
        4 missing.
    work : object
        Private to the structure; None once the plan was committed or discarded.
    state : object
        The structure's state at the preparation.
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
    """Prepared addition of vertices, with all memory for its commit.

    Valid for one `commit_vertices` or `discard_vertices` of its structure, unless that changes before.

    Attributes
    ----------
    n_rows, n_vertices : int
        The structure's after the commit.
    work : dict of str to array
        The structure's arrays after the commit. Emptied by commit and discard.
    state : object
        The structure's state at the preparation.
    """

    n_rows: int
    n_vertices: int
    work: dict[str, Array]
    state: object
