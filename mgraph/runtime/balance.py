"""How even a graph lies on its workers, from what each last said of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mgraph.runtime import display

__all__ = ["Balance", "WorkerLoad", "balance_of"]


@dataclass(frozen=True)
class WorkerLoad:
    """What one worker has of a graph.

    Parameters
    ----------
    rank : int
    address : str
    vertices, edges : int
        Of its range; an undirected edge counts with one of the two owners of its ends.
    arcs : int
        What its structures hold: an undirected edge twice, with ``reverse=True`` each edge with both owners.
    nbytes : int
        Device memory of structures and results.
    seconds : float
        What the last batch took it, without waiting for other workers.
    """

    rank: int
    address: str
    vertices: int
    edges: int
    arcs: int
    nbytes: int
    seconds: float


@dataclass(frozen=True, repr=False)
class Balance:
    """The loads of all workers in rank order; shows as a table."""

    workers: tuple[WorkerLoad, ...]

    @property
    def ratio(self) -> float:
        """The most arcs of a worker over the mean: 1 is even; 1 for a graph without edges."""
        arcs = [worker.arcs for worker in self.workers]
        return max(arcs) * len(arcs) / sum(arcs) if sum(arcs) else 1.0

    def __repr__(self) -> str:
        states = [vars(worker) | {"lo": 0, "hi": worker.vertices} for worker in self.workers]
        title = f"most arcs over the mean: {self.ratio:.2f}"
        return display.as_text(title, [worker.address for worker in self.workers], states)


def balance_of(addresses: Sequence[str], states: Sequence[dict[str, Any]]) -> Balance:
    """The balance of what ranks said of themselves."""
    loads = (
        WorkerLoad(rank, address, s["hi"] - s["lo"], s["edges"], s["arcs"], s["nbytes"], s["seconds"])
        for rank, (address, s) in enumerate(zip(addresses, states, strict=True))
    )
    return Balance(tuple(loads))
