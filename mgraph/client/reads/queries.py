"""Reads of a graph, and runs of algorithms; `DynamicGraph` binds these."""

from __future__ import annotations

import time as clock
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

import numpy as np

from mgraph.algorithms import ALGORITHMS
from mgraph.checks import check_direction, check_flag, is_choice
from mgraph.client.reads import routed_reads
from mgraph.client.reports.history import note_of_stop
from mgraph.client.reports.memory import Memory, memory_of
from mgraph.client.reports.progress import Done, shown
from mgraph.client.results.results import VertexValues
from mgraph.client.results.run import run_algorithm
from mgraph.errors import InvalidOption, UnknownVertex
from mgraph.facade import ERRORS_END, hint
from mgraph.structures import Csr
from mgraph.tables.times import as_shown

__all__ = ["degrees", "fingerprint", "has_edge", "has_edges", "memory", "neighbors", "run", "to_csr", "vertices"]

#: algorithms whose result is not one value for each vertex
Elsewhere = Literal[
    "jaccard", "k_hop", "k_truss", "modularity", "overlap", "random_walks", "sample_neighbors", "shortest_path"
]


def has_edges(self: Any, src: Any, dst: Any) -> np.ndarray:
    """Check the existence of each edge ``src[i] -> dst[i]``: bool[n].

    Parameters
    ----------
    src, dst : array-like, shape (n,)
        Vertex ids, or keys in a graph that has them, as `EdgeBatch` takes them.

    Returns
    -------
    bool[n]
        In this process.

    Raises
    ------
    UnknownVertex
        An id is `num_vertices` or more, or a key is unknown.
    InvalidBatch
        The arrays differ in length.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(log m) per edge; O(1) expected in "slabgraph", and O(degree) in "graphvine", whose rows are not sorted.
    """
    directory = self._directory
    return directory.read(lambda now: routed_reads.has_edges(directory.coordinator, now, src, dst))


def has_edge(self: Any, u: Any, v: Any) -> bool:
    """Return True if the edge ``u -> v`` exists, False if `u` or `v` is no vertex.

    A value that cannot name a vertex, such as a fraction, raises `InvalidBatch`. For many edges use `has_edges`, which
    makes one call for all.
    """
    try:
        return bool(has_edges(self, [u], [v])[0])
    except UnknownVertex:
        return False


def degrees(self: Any, ids: Any = None, direction: str = "out") -> np.ndarray:
    """Return the out-degrees or in-degrees of `ids`, or of all vertices: uint32[n].

    A self-loop counts once.

    Parameters
    ----------
    ids : array-like, shape (n,), optional
        Vertex ids or keys; by default all vertices, in the order of `vertices`.
    direction : "out" | "in"
        The edges to count. "in" needs ``reverse=True`` or an undirected graph.

    Returns
    -------
    uint32[n]
        In this process.

    Raises
    ------
    UnknownVertex
        An id is `num_vertices` or more, or a key is unknown.
    InvalidOption
        `direction` is neither "out" nor "in", or is "in" and the graph has no in-edges.
    InvalidBatch
        `ids` is a single value, or no array of ids or keys.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n).
    """
    check_direction(direction, self.reverse)
    return self._directory.read(lambda now: routed_reads.degrees(self._directory.coordinator, now, ids, direction))


def neighbors(self: Any, ids: Any, direction: str = "out", time: bool = False) -> Csr:
    """Return the neighbours of `ids` as a CSR, with a row for each of `ids`.

    Parameters
    ----------
    ids : array-like, shape (n,)
        Vertex ids, or keys in a graph that has them; repeats are allowed.
    direction : "out" | "in"
        The ends of out-edges, or the origins of in-edges. "in" needs ``reverse=True`` or an undirected graph.
    time : bool
        Return the times of the edges, too, in a graph with `times`.

    Returns
    -------
    Csr
        In this process. The neighbours of ``ids[i]`` are ``dst[offsets[i] : offsets[i + 1]]``: `offsets` is
        int64[n + 1]; `dst` is uint32[m], or keys, int64[m] or str objects; `weight` is float32[m], or None in an
        unweighted graph; `time` is int64[m] or datetime64[m], or None. "slabgraph" and "graphvine" give the neighbours
        of a vertex in no order, the other structures by ascending id in the graph's internal order.

    Raises
    ------
    UnknownVertex
        An id is `num_vertices` or more, or a key is unknown.
    InvalidOption
        `direction` is neither "out" nor "in", or is "in" and the graph has no in-edges; or `time` is True and the graph
        has no times.
    InvalidBatch
        `ids` is a single value, or no array of ids or keys.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) for m edges returned.
    """
    check_direction(direction, self.reverse)
    times, coordinator = self._options.times, self._directory.coordinator
    with_times = check_flag(time, "time")
    if with_times and times is None:
        raise InvalidOption("time=True needs times of the edges; create the graph with times=True")
    rows: Csr = self._directory.read(lambda now: routed_reads.neighbors(coordinator, now, ids, direction, with_times))
    return replace(rows, time=as_shown(rows.time, times)) if with_times else rows


def vertices(self: Any) -> np.ndarray:
    """Return all vertices, in the order of results' ``to_numpy()``: keys, int64[n] or str objects; or ids, int64[n].

    O(n), without a call to the workers. Keys are in the order of their first insertion; in a batch, sources come
    before targets. After a vertex is deleted, later vertices move up.
    """
    return self._directory.read(lambda now: now.all_names())


def to_csr(self: Any) -> Csr:
    """Return the whole graph as a CSR in this process.

    In a graph with keys, rows and destinations are positions in `vertices`. In a graph with `times`, `time` has the
    time of each edge: int64[m], or datetime64[m]. O(n + m); O(m log m) in a graph with an `order` or with `times`. This
    process needs the memory for it.

    Returns
    -------
    Csr
        With `offsets`, int64[n + 1]; `dst`, uint32[m]; `weight`, float32[m], or None in an unweighted graph; and
        `time`, or None.

    Raises
    ------
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.
    """
    times = self._options.times
    rows = self._directory.read(partial(routed_reads.all_rows, self._directory.coordinator, time=times is not None))
    return replace(rows, time=as_shown(rows.time, times))


def fingerprint(self: Any) -> int:
    """Return a 64-bit hash of the set of edges, by users' ids and without weights.

    Graphs with the same edges have the same hash, whatever their history, structure, partition and device. It is the
    sum of SplitMix64's finaliser of ``src << 32 | dst`` over all edges, modulo 2**64; an undirected edge counts in both
    directions. In a graph with keys, hashes of the keys take the place of ids. O(n + m), computed on the workers.
    """
    return routed_reads.fingerprint(self._directory)


def memory(self: Any) -> Memory:
    """Return the bytes of the graph per worker, by what holds them.

    `nbytes` is their sum after the last call; this makes a call of its own, O(results).

    Returns
    -------
    Memory
        With a `WorkerMemory` per worker: edges, times, results, maintained results and the region in which programs
        of ranks meet; the unused memory of pools, and what the worker may still allocate.

    Raises
    ------
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.
    """
    caller = self._directory.coordinator
    answers = caller.call("memory", {})
    return memory_of(caller.status.addresses, answers)


@overload
def run(self: Any, algorithm: Elsewhere, /, **arguments: Any) -> Any: ...
@overload
def run(self: Any, algorithm: str, /, **arguments: Any) -> VertexValues: ...
def run(self: Any, algorithm: str, /, **arguments: Any) -> Any:
    """Run the algorithm with this name: ``run("bfs", source=0)`` is the same as ``bfs(0)``.

    Raises
    ------
    InvalidOption
        No algorithm has this name; the message lists the names. Or an argument is bad, as in the algorithm's method.
    """
    if not is_choice(algorithm, ALGORITHMS):
        names = sorted(ALGORITHMS)
        raise InvalidOption(
            f"algorithm {algorithm!r:.200} is none of {', '.join(map(repr, names))}{hint(algorithm, names)}"
        )
    method, facts = ALGORITHMS[algorithm], self._options.facts
    checked = lambda now: method.arguments(facts(now), arguments)  # noqa: E731
    caller, began = self._directory.coordinator, clock.perf_counter()
    stopped = note_of_stop(caller, algorithm, "it has no result, and the graph is as it was")
    with ERRORS_END, stopped, shown(algorithm, lambda: Done(0, None, f"at epoch {caller.epoch}")):
        result = self._directory.read(partial(run_algorithm, caller, algorithm, checked))
    self._updates.history.add(algorithm, caller, caller.epoch, 0, clock.perf_counter() - began)
    return result
