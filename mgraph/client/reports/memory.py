"""The report on a graph's memory, by worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mgraph.client.reports.report import bytes_text, text_of

__all__ = ["Memory", "WorkerMemory", "memory_of"]

#: what holds the graph's bytes: attributes of a worker, and columns of the table
HOLDERS = ("structures", "times", "change_log", "results", "maintained", "region")
SHOWN = (*HOLDERS, "unused", "free")


@dataclass(frozen=True)
class WorkerMemory:
    """Bytes of a graph on a worker, in device memory: of its GPU, or of the host.

    Parameters
    ----------
    rank : int
    address : str
    structures : int
        Edges and their weights, with the room for more.
    times : int
        Edges' times, and what a window needs to find the expired ones.
    change_log : int
        The last changed arcs, kept for maintained results.
    results : int
        Columns of results that are in use.
    maintained : int
        Maintained results, and what their methods keep to bring them up to date.
    region : int
        The region in which programs of ranks meet, mapped by the other workers of the host.
    unused : int
        Freed memory that the process's pools keep for later allocations of any of its graphs; 0 on a CPU.
    free : int
        Memory that the process may still allocate, with `unused`.
    """

    rank: int
    address: str
    structures: int
    times: int
    change_log: int
    results: int
    maintained: int
    region: int
    unused: int
    free: int

    @property
    def nbytes(self) -> int:
        """The bytes that the graph holds on this worker: all but `unused` and `free`."""
        return sum(getattr(self, name) for name in HOLDERS)


@dataclass(frozen=True, repr=False)
class Memory:
    """The memory of a graph on each worker, in rank order; displayed as a table."""

    workers: tuple[WorkerMemory, ...]

    @property
    def nbytes(self) -> int:
        """The bytes that the graph holds on all workers."""
        return sum(worker.nbytes for worker in self.workers)

    def __repr__(self) -> str:
        rows = [
            [str(worker.rank), worker.address, *(bytes_text(getattr(worker, name)) for name in SHOWN)]
            for worker in self.workers
        ]
        heads = ["rank", "worker", *(name.replace("_", " ") for name in SHOWN)]
        return text_of(f"memory: {bytes_text(self.nbytes)}", heads, rows)


def memory_of(addresses: Sequence[str], answers: Sequence[Mapping[str, int]]) -> Memory:
    """Return the report from the ranks' answers."""
    pairs = enumerate(zip(addresses, answers, strict=True))
    return Memory(tuple(WorkerMemory(rank, address, **answer) for rank, (address, answer) in pairs))
