"""Reports to the user: outcomes of batches, loads of workers, and a graph's display as text and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from operator import itemgetter
from typing import Any

import numpy as np

from mgraph.batch import COUNTS, TOLD
from mgraph.protocol import ShardState

__all__ = ["Balance", "UpdateReport", "WorkerLoad", "as_html", "as_text", "balance_of", "of_batch", "of_steps", "title"]

_TOLD = itemgetter(*TOLD)

# ---- batches ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, init=False, repr=False)
class UpdateReport:
    """The exact outcome of a batch.

    If the batch names an edge more than once, only the last operation counts. An undirected edge counts once.

    Attributes
    ----------
    inserted, updated : int
        Insertions of new edges, and of edges that existed.
    deleted, missing : int
        Deletions of edges that existed, and of edges that did not. All counts are -1 if the batch is committed and its
        answer was lost, with a worker or by Ctrl-C.
    epoch : int
        The graph's epoch after the batch.
    seconds : float
        The duration of the call. For a batch of a pipeline, the time from its call to its commit; for a step of an
        ingest, the longest time that a worker took for it; NaN if a worker was lost after the step was made.
    late : int
        Insertions that were too late for the graph's window, and were ignored.
    expired : int
        Edges that fell out of the window, or left by `expire`; `deleted` does not count them.
    """

    inserted: int
    updated: int
    deleted: int
    missing: int
    epoch: int
    seconds: float
    late: int = 0
    expired: int = 0

    def __init__(
        self,
        inserted: int,
        updated: int,
        deleted: int,
        missing: int,
        epoch: int,
        seconds: float,
        late: int = 0,
        expired: int = 0,
    ) -> None:  # the constructor of `dataclass` takes four times as long
        fields = self.__dict__
        fields["inserted"], fields["updated"], fields["deleted"] = inserted, updated, deleted
        fields["missing"], fields["epoch"], fields["seconds"] = missing, epoch, seconds
        if late or expired:
            fields["late"], fields["expired"] = late, expired

    def __repr__(self) -> str:
        values = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return f"UpdateReport({', '.join(f'{n}={v:.6g}' if isinstance(v, float) else f'{n}={v}' for n, v in values)})"


def of_batch(answers: Sequence[dict[str, Any]], seconds: float, absent: int = 0) -> UpdateReport:
    """Return the report of a batch from the ranks' answers.

    `absent` edges to delete were not sent, and count as missing.
    """
    counts = map(int, map(sum, zip(*map(_TOLD, answers), strict=True)))
    inserted, updated, deleted, missing, late, expired = counts
    return UpdateReport(inserted, updated, deleted, missing + absent, answers[0]["epoch"], seconds, late, expired)


def of_steps(answers: Sequence[dict[str, Any]], before: np.ndarray | None = None) -> list[UpdateReport]:
    """Return the reports of an ingest's steps from the ranks' answers, whose epoch is the last step's.

    `before` are the counts, in the order of `TOLD`, of the steps before a worker was lost; their seconds are unknown.
    """
    # Add up the ranks' counts; a step takes as long as its slowest rank.
    counts = sum(np.asarray(answer["counts"]) for answer in answers).reshape(-1, len(COUNTS))  # type: ignore[union-attr]
    seconds = np.max([answer["times"] for answer in answers], axis=0)
    by_time = sum(np.asarray(answer["by_time"]) for answer in answers).reshape(-1, 2)  # type: ignore[union-attr]
    rows = np.concatenate([counts, by_time], axis=1)
    if before is not None:
        rows, seconds = np.concatenate([before, rows]), np.concatenate([np.full(len(before), np.nan), seconds])

    # Steps before a loss have consecutive epochs that end where the answers begin.
    epochs, end = answers[0]["epochs"], answers[0]["before"] + 1
    epochs = [*range(end - (len(seconds) - len(epochs)), end), *epochs]
    return [
        UpdateReport(inserted, updated, deleted, missing, epochs[step], float(seconds[step]), late, expired)
        for step, (inserted, updated, deleted, missing, late, expired) in enumerate(rows.tolist())
    ]


# ---- the load of each worker -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerLoad:
    """The part of a graph on a worker.

    Parameters
    ----------
    rank : int
    address : str
    vertices, edges : int
        The vertices that the worker owns, and their edges. An undirected edge counts for one of its two owners.
    arcs : int
        The arcs that the worker stores. An undirected edge is two arcs; so is an edge with ``reverse=True``, one for
        the owner of each end.
    nbytes : int
        Bytes of device memory that structures and results hold, and the region in which programs of ranks meet.
    seconds : float
        The time that the worker took for the last batch, without waiting for other workers.
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
    """The loads of all workers, in rank order; displayed as a table."""

    workers: tuple[WorkerLoad, ...]

    @property
    def ratio(self) -> float:
        """The largest number of arcs on a worker, divided by the mean: 1 if even, or without edges."""
        arcs = [worker.arcs for worker in self.workers]
        return max(arcs) * len(arcs) / sum(arcs) if sum(arcs) else 1.0

    def __repr__(self) -> str:
        return as_text(f"most arcs of a worker over the mean: {self.ratio:.2f}", self.workers)


def balance_of(addresses: Sequence[str], states: Sequence[ShardState]) -> Balance:
    """Return the balance from the ranks' last states."""
    loads = (
        WorkerLoad(rank, address, s.hi - s.lo, s.edges, s.arcs, s.nbytes, s.seconds)
        for rank, (address, s) in enumerate(zip(addresses, states, strict=True))
    )
    return Balance(tuple(loads))


# ---- display ---------------------------------------------------------------------------------------------------------

HEADS = ("rank", "worker", "vertices", "edges", "arcs / mean", "memory", "last batch")


def bytes_text(n: int) -> str:
    """Format `n` bytes with a binary unit, as in "1.50 MiB"."""
    power = min((max(n, 1).bit_length() - 1) // 10, 5)
    return f"{n} B" if power == 0 else f"{n / 1024**power:.2f} {'kMGTP'[power - 1]}iB"


def _time(seconds: float) -> str:
    """Format `seconds` with a unit, as in "1.50 ms"."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.2f} {name}"
    return f"{seconds * 1e6:.2f} us"


def _rows(loads: Sequence[WorkerLoad]) -> list[tuple[str, ...]]:
    mean = sum(load.arcs for load in loads) / max(1, len(loads))
    return [
        (
            str(load.rank),
            load.address,
            f"{load.vertices:,}",
            f"{load.edges:,}",
            f"{load.arcs / mean:.2f}" if mean else "-",
            bytes_text(load.nbytes),
            _time(load.seconds) if load.seconds else "-",
        )
        for load in loads
    ]


def title(graph: Any) -> str:
    """Return a graph's title: kind, size, epoch and place."""
    kind = f"{'' if graph.directed else 'un'}directed{', weighted' if graph.weighted else ''}"
    state = ", closed" if graph._directory.coordinator.status.closed else ""
    so_far = " so far" if graph._options.grows and not graph.keys else ""
    keys = f", keys: {graph.keys}" if graph.keys else ""
    size = f"{graph._directory.n_vertices:,} vertices{so_far}{keys}, {graph.num_edges:,} edges"
    return (
        f"DynamicGraph {graph.id}: epoch {graph.epoch}, {size}, {kind}, {graph.structure} on {graph.device}, "
        f"exchange {graph.exchange}{state}"
    )


def as_text(title: str, loads: Sequence[WorkerLoad]) -> str:
    """Return a title and a text table with a line per worker and the columns `HEADS`."""
    return text_of(title, HEADS, _rows(loads))


def as_html(title: str, loads: Sequence[WorkerLoad]) -> str:
    """Return a title and an HTML table with a row per worker and the columns `HEADS`."""
    return html_of(title, HEADS, _rows(loads))


def text_of(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a title and a text table; without rows the title alone."""
    if not rows:
        return title
    table = [heads, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join([title, *(f"  {line}" for line in lines)])


def html_of(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a title and an HTML table; without rows the title alone."""
    if not rows:
        return f"<p>{escape(title)}</p>"
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<p>{escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
