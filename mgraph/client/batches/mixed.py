"""Mixed streams: check operations, split them among the ranks, and merge the answers in stream order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mgraph.budget import host_memory_limit
from mgraph.checks import check_growth
from mgraph.client.batches.split import deal, largest_ids
from mgraph.client.calls.caller import Caller
from mgraph.client.options import Options
from mgraph.client.reads import routed_reads
from mgraph.client.reads.routed_reads import offsets_of, rows_at
from mgraph.client.reports import report
from mgraph.client.reports.report import UpdateReport
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.keyed import Keyed
from mgraph.client.vertices.numbering import Numbering
from mgraph.device import Device
from mgraph.errors import InvalidBatch, UnknownVertex
from mgraph.operations import COLUMNS, Operations, check_kinds, check_vertices
from mgraph.structures import Csr

__all__ = ["Answers", "answers_of", "execute", "in_flight", "of_steps", "row_args", "weights"]

#: memory that this process needs, as a multiple of the answers' bytes: for one rank; to join and sort those of several
COPIES_OF_ONE, COPIES = 2, 10
#: fields of a rank's answer, one per kind of query, from `mgraph.worker.commit.mixed.answered`
KINDS = ("found", "weights", "degrees", "neighbors", "predecessors")


@dataclass(frozen=True)
class Answers:
    """Answers to the queries of `Operations`: each kind in stream order, in host memory.

    Attributes
    ----------
    has_edge : bool[n]
        For each "has_edge", whether the edge was there.
    weight : float32[n]
        For each "weight", the edge's weight; NaN where there was no edge.
    degree : uint32[n]
        For each "degree", the out-degree.
    neighbors, predecessors : Csr
        For each "neighbors" or "predecessors", a row: ``dst[offsets[i] : offsets[i + 1]]``, in no particular order.
        `offsets` is int64[n + 1], `dst` uint32[m], and `weight` float32[m], or None in an unweighted graph. In a graph
        with keys, `dst` has keys: int64[m], or str objects.
    report : UpdateReport
        The report of the updates, as `DynamicGraph.update` returns it: repeats of an edge are dropped. Without updates
        all counts are 0, and the epoch is that of the graph.
    """

    has_edge: np.ndarray
    weight: np.ndarray
    degree: np.ndarray
    neighbors: Csr
    predecessors: Csr
    report: UpdateReport


def execute(self: Any, operations: Operations) -> Answers:
    """Execute a stream of updates and queries, and return the answers.

    The answers are those of a replay of the stream, one operation at a time. The updates are one batch: they are
    applied on all workers, or on none, as one epoch. Without updates there is no epoch.

    Parameters
    ----------
    operations : Operations
        In an undirected graph, "has_edge" and "weight" ask about the edge either way, and predecessors are neighbours.
        In a graph that grows, a query knows the vertices that updates before it name; in a graph with keys, those that
        insertions before it name. There an edge to delete whose end is no vertex counts as missing.

    Returns
    -------
    Answers

    Raises
    ------
    UnknownVertex
        An id is `num_vertices` or more; or a query names a key that is no vertex at its place in the stream.
    InvalidBatch
        There are weights, or a query for a weight, and the graph is unweighted; or the graph has keys of another kind.
    InvalidOption
        There is a query for predecessors, and the graph is directed and keeps no in-edges.
    CapacityError
        A worker has too little memory for the updates or for its answers, or this process has too little for all
        answers; or there are 2**31 operations or more.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    All errors but the last three are raised before anything was changed. Those of the first three name the place in the
    stream and the value.

    Notes
    -----
    O(n log n) in total for n operations, divided over the workers, and for each row that is asked for
    O((d + u) log u), for its d edges and the u updates of it in the stream. Updates and queries are sorted together, by
    source, destination and place in the stream. The answer to a query of an edge is the last update of it before the
    query, else the graph's state; a row is the old row with the updates before the query. This is the streaming
    consistency of mixed batches in the LPMA paper.

    Examples
    --------
    >>> answers = g.execute(Operations(["insert", "has_edge"], [0, 0], [1, 1]))  # doctest: +SKIP
    >>> answers.has_edge  # doctest: +SKIP
    array([ True])
    """
    answers = _execute_now(self._directory, self._options, self._storing is not None, operations)
    self._updates.history.batches("execute", self._directory.coordinator, answers)
    self._updates.order_first()
    self._updates.landed() if operations.n_updates else self._updates.followed()
    return answers


def weights(self: Any, src: Any, dst: Any) -> np.ndarray:
    """Return the weight of each edge ``src[i] -> dst[i]``: float32[n], NaN where there is no edge.

    Parameters
    ----------
    src, dst : array-like, shape (n,)
        Vertex ids, or keys in a graph that has them, as `EdgeBatch` takes them.

    Returns
    -------
    float32[n]
        In this process.

    Raises
    ------
    UnknownVertex
        An id is `num_vertices` or more, or a key is unknown.
    InvalidBatch
        The graph is unweighted, or the arrays differ in length.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    The cost of `has_edges`.
    """
    directory = self._directory
    if not self._options.weighted:
        directory.ids(src, "src"), directory.ids(dst, "dst")  # errors of ids come first
        raise InvalidBatch("the graph is unweighted, so its edges have no weights; create it with weighted=True")
    return directory.read(lambda now: routed_reads.weights(directory.coordinator, now, src, dst))


def _execute_now(directory: Directory, options: Options, logged: bool, operations: Operations) -> Answers:
    """Execute a stream while no batch is in flight."""
    with directory.coordinator.lock:
        directory.check()
        _check_kinds(operations, options)
        before = directory.n_vertices  # read first: ids may not name vertices that another thread adds

        # Translate keys into ids first.
        if directory.takes(operations):
            with directory.keyed(operations, options.directed, logged) as keyed:
                return _send_keyed(directory, options, keyed, operations.n_updates > 0)

        # Ids: a single GPU checks them itself; a graph that grows adds vertices up to the largest one.
        later = _checked_by_worker(directory, options, operations)
        n = before if later else _vertices_after(operations, before, options.grows)
        with nullcontext() if n == before else directory.growing(n) as more:
            if n == before or directory.numbering.keys is None:
                keyed, commits = Keyed(operations, 0, n, None), operations.n_updates > 0
                send = partial(_send, directory.coordinator, options, keyed, more, commits, check=later)
                return directory.read(send)
        # Another thread's batch was the first, and has keys.
        return _execute_now(directory, options, logged, operations)


def _send_keyed(directory: Directory, options: Options, keyed: Keyed[Operations], commits: bool) -> Answers:
    """Execute a stream of keys, while the numbering is locked."""
    more = keyed.n_vertices if keyed.n_vertices > directory.n_vertices else None
    return directory.read(partial(_send, directory.coordinator, options, keyed, more, commits))


def shares_of(operations: Operations, coordinator: Caller, options: Options) -> list[dict[str, Any]]:
    """Split checked operations into contiguous shares, one per rank, each with its first place in the stream."""
    n, size = len(operations), len(coordinator.status.addresses)
    columns = {name: getattr(operations, name) for name in COLUMNS}
    shares = deal(columns, size, coordinator.status.one_process and options.device == "cuda")
    if size == 1:
        return [{**shares[0], "first": 0, "counts": list(operations.counts.values())}]
    return [{**share, "first": n * rank // size} for rank, share in enumerate(shares)]


def _send(
    coordinator: Caller,
    options: Options,
    keyed: Keyed[Operations],
    more: int | None,
    commits: bool,
    now: Numbering,
    check: bool = False,
) -> Answers:
    """Execute a stream on all ranks, and return the answers.

    Parameters
    ----------
    more : int or None
        The number of vertices after the stream, if it adds some.
    commits : bool
        True if the stream has updates.
    check : bool
        True if the single rank checks the ids.
    """
    began, shares = time.perf_counter(), shares_of(keyed.batch, coordinator, options)
    args = row_args(now) if keyed.batch.n_rows else {}
    if check:
        args["check"] = True
    if more is not None:
        args["n_vertices"], shares[0]["keys"] = more, keyed.brought

    # Make one call, which commits the updates as an epoch.
    answers = coordinator.call("execute" if commits else "query", args, shares)
    if more is not None:  # rows may name the new vertices
        now = now.moved(now.partition.grown(more - now.n_vertices))
    return answers_of(now, answers, time.perf_counter() - began, keyed.missing)


def row_args(now: Numbering) -> dict[str, Any]:
    """Return the arguments that a call needs to answer with rows; see `mgraph.worker.calls.changes.execute`."""
    copies = COPIES_OF_ONE if now.partition.size == 1 else COPIES
    return {"generation": now.generation, "room": host_memory_limit() // copies}


@contextmanager
def in_flight(
    directory: Directory,
    options: Options,
    logged: bool,
    operations: Operations,
    land: Callable[[], None],
    alone: bool = False,
) -> Iterator[tuple[str, list[dict[str, Any]], Callable[[list[dict[str, Any]], float], Answers]] | Answers]:
    """Prepare a stream for a pipeline: yield its call, shares and the function that makes the answers.

    A stream without updates, with new keys, or with `alone` is executed now, after ``land()`` has waited for the
    batches in flight; its answers are yielded.
    """
    directory.check()
    _check_kinds(operations, options)
    n_vertices = directory.n_vertices  # read first, for the same reason as in `_execute_now`
    if alone and not directory.takes(operations):
        # Check here: `_execute_now` lets a growing graph add vertices.
        check_vertices(operations, n_vertices)

    # Without updates there is no epoch, and so no place among the batches in flight.
    if alone or not operations.n_updates:
        land()
        yield _execute_now(directory, options, logged, operations)
    elif not directory.takes(operations):
        check_vertices(operations, n_vertices)
        yield _message(directory, options, Keyed(operations, 0, n_vertices, None))
    else:
        with directory.keyed(operations, options.directed, logged) as found:
            if found.n_vertices > directory.n_vertices:
                land()
                yield _send_keyed(directory, options, found, commits=True)
            else:
                yield _message(directory, options, found)


def _message(
    directory: Directory, options: Options, keyed: Keyed[Operations]
) -> tuple[str, list[dict[str, Any]], Callable[[list[dict[str, Any]], float], Answers]]:
    """Return the call's name, the ranks' shares, and the outcome's function."""
    now, operations = directory.numbering, keyed.batch
    rows = row_args(now) if operations.n_rows else {}
    shares = [{**share, **rows} for share in shares_of(operations, directory.coordinator, options)]
    return "execute", shares, partial(answers_of, now, absent=keyed.missing)


def _check_kinds(operations: Any, options: Options) -> None:
    """Raise the errors of `execute` for operations that the graph's options exclude.

    These are `TypeError`, `InvalidBatch`, `InvalidOption` and `CapacityError`.
    """
    if not isinstance(operations, Operations):
        raise TypeError(f"execute takes Operations, got {type(operations).__name__}")
    check_kinds(operations, options.weighted, options.reverse or not options.directed, options.combine, options.times)


def _checked_by_worker(directory: Directory, options: Options, operations: Operations) -> bool:
    """Return True if a single worker checks the ids: they are on its GPU, and one wait is enough."""
    coordinator, ids = directory.coordinator, (operations.src, operations.dst)
    alone = coordinator.status.one_process and len(coordinator.status.addresses) == 1 and options.device == "cuda"
    return alone and not options.grows and not any(isinstance(column, np.ndarray) for column in ids)


def _vertices_after(operations: Operations, n_vertices: int, grows: bool) -> int:
    """Return the number of vertices after operations by ids.

    Raises `UnknownVertex` if they name other vertices.
    """
    if grows:
        return _grown(operations, n_vertices)
    check_vertices(operations, n_vertices)
    return n_vertices


def _grown(operations: Operations, n_vertices: int) -> int:
    """Return the number of vertices after updates of a growing graph.

    A query knows the vertices that updates before it name.
    """
    if not len(operations) or max(largest_ids(operations.src, operations.dst)) < n_vertices:
        return n_vertices
    kinds, src, dst = (Device.to_host(column) for column in (operations.kind, operations.src, operations.dst))

    # bounds[i]: the number of vertices that operation i may name, a running maximum over the updates before it.
    updates = kinds <= Operations.DELETE
    largest = np.where(updates, np.maximum(src, dst).astype(np.int64), -1)
    bounds = np.maximum(np.maximum.accumulate(largest) + 1, n_vertices)
    for name, ids in (("src", src), ("dst", dst)):
        bad = ~updates & (ids >= bounds)
        if bad.any():
            at = int(bad.argmax())
            raise UnknownVertex(f"{name}[{at}] is {int(ids[at])}; the graph has {int(bounds[at])} vertices by then")

    # Check the growth by the largest id, so that one wrong id cannot fill the memory.
    at = int(largest.argmax())
    if int(largest[at]) < n_vertices:
        return n_vertices
    name = "src" if src[at] == largest[at] else "dst"
    return check_growth(int(largest[at]), f"{name}[{at}]", n_vertices, operations.n_updates)


# ---- answers ---------------------------------------------------------------------------------------------------------


def answers_of(numbering: Numbering, answers: Sequence[dict[str, Any]], seconds: float, absent: int = 0) -> Answers:
    """Merge the ranks' answers in stream order and users' names.

    `absent` edges to delete were not sent, and count as missing.
    """
    return _assembled(numbering, answers, report.of_batch(answers, seconds, absent))


def of_steps(
    numbering: Numbering, answers: Sequence[dict[str, Any]], before: np.ndarray | None = None
) -> list[UpdateReport | Answers]:
    """Return a report or answers for each step of an ingest.

    `before` are the counts of the steps before a worker was lost; their answers were lost with it.
    """
    reports = report.of_steps(answers, before)
    first = len(reports) - len(answers[0]["answers"])
    outcomes: list[UpdateReport | Answers] = [*reports[:first]]
    for step, step_report in enumerate(reports[first:]):
        parts = [answer["answers"][step] for answer in answers]
        outcomes.append(step_report if parts[0] is None else _assembled(numbering, parts, step_report))
    return outcomes


def _assembled(numbering: Numbering, answers: Sequence[dict[str, Any]], done: UpdateReport) -> Answers:
    # Each rank answers the queries of its rows: sort all answers by their places in the stream.
    orders: list[Any] = [None] * len(KINDS)
    if len(answers) > 1:
        orders = [np.argsort(places) for places in _places(answers)]
    has_edge, weights, degrees = (
        _joined(answers, name, order) for name, order in zip(KINDS[:3], orders[:3], strict=True)
    )
    successors, predecessors = (
        _rows(answers, name, order, numbering) for name, order in zip(KINDS[3:], orders[3:], strict=True)
    )
    return Answers(has_edge, weights, degrees, successors, predecessors, done)


def _places(answers: Sequence[dict[str, Any]]) -> list[np.ndarray]:
    """Return the stream places of each kind's answers, by rank."""
    ends = [np.cumsum([len(answer[name]) for name in KINDS])[:-1] for answer in answers]
    parts = [np.split(answer["places"], end) for answer, end in zip(answers, ends, strict=True)]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _joined(answers: Sequence[dict[str, Any]], name: str, order: np.ndarray | None = None) -> np.ndarray:
    parts = [answer[name] for answer in answers]
    # Arrays from a comm may be read-only or unaligned.
    if len(parts) == 1 and parts[0].flags.behaved:
        return parts[0]
    joined = np.concatenate(parts)
    return joined if order is None else joined[order]


def _rows(answers: Sequence[dict[str, Any]], name: str, order: np.ndarray | None, numbering: Numbering) -> Csr:
    weighted = answers[0][f"{name}_weight"] is not None
    dst = numbering.names(numbering.outside(_joined(answers, f"{name}_dst")))
    csr = Csr(offsets_of(_joined(answers, name)), dst, _joined(answers, f"{name}_weight") if weighted else None)
    return csr if order is None else rows_at(csr, order)
