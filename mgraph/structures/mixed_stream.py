"""Streams of updates and queries: one sort, then separate updates, and answers as of each query's place.

The stream becomes a run, sorted by (row, dst, place in the stream); a query of a row has dst 0. `MixedStream` separates
it:

==================  ===========================================================  =======================================
part                order                                                        answered by
==================  ===========================================================  =======================================
updates             (row, dst, place): the run for a structure
queries of edges    (row, dst, place), each with the number of updates before    the update before it, if it has the
                                                                                 same key, else the structure
queries of rows     (row, place)                                                 the row's degree plus the changes of
                                                                                 earlier updates; the row, patched
==================  ===========================================================  =======================================

The degree at a place is the row's degree plus the changes of its earlier updates. Each update adds its change, -1, 0 or
1, to the first query of its row after it, found by binary search; prefix sums over the queries do the rest. So nothing
is sorted again, and a row with many updates and many queries costs no more than others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import Struct, constants, load
from mgraph.structures.contract import Structure
from mgraph.structures.reads import Csr
from mgraph.structures.run import Run
from mgraph.structures.sort import sort_keys
from mgraph.structures.sums import chunks_of, sum_chunks

__all__ = ["MixedStream", "PendingResults", "QueryResults", "load_kernels", "sort_stream"]

Array = Any
_KINDS = constants("kernels/operation_kinds.cuh")
CLASSES = _KINDS["n_kinds"]
BY_KIND = sum(kind << 4 * kind for kind in range(CLASSES))  #: each kind is a class
#: classes of a run: updates, queries of rows, of edges and of weights, and the rest
BY_PART = sum(
    part << 4 * _KINDS[name]
    for part, names in enumerate(
        (
            ("op_insert", "op_delete"),
            ("ask_degree", "ask_neighbors", "ask_predecessors"),
            ("ask_edge",),
            ("ask_weight",),
            ("no_op",),
        )
    )
    for name in names
)
CHUNK = {"cuda": 512, "cpu": 1 << 14}  #: operations per tile


@dataclass(frozen=True)
class QueryResults:
    """Answers to the queries of a run, in host memory, each kind in the order of `place`.

    Parameters
    ----------
    has_edge : bool[n]
    weight : float32[n]
        NaN for missing edges.
    degree : uint32[n]
    neighbors, predecessors : Csr
    place : uint32[n] or None
        The places of all queries in the stream, kind after kind as above; None if they ascend within each kind.
    """

    has_edge: np.ndarray
    weight: np.ndarray
    degree: np.ndarray
    neighbors: Csr
    predecessors: Csr
    place: np.ndarray | None


@dataclass(frozen=True)
class PendingResults:
    """Answers in flight from the device to the host.

    Parameters
    ----------
    nbytes : int
        Bytes of the `QueryResults`.
    answers : callable
        Waits for the answers and returns them.
    """

    nbytes: int
    answers: Callable[[], QueryResults]


def load_kernels(structure: Structure) -> None:
    """Compile the kernels of streams ahead of the first stream."""
    load(structure.device, "structures/mixed_stream.cuh")
    load(structure.device, "structures/query_results.cuh", structure.view())


def sort_stream(
    device: Device, keys: Array = None, kinds: Array = None, weight: Array = None, first: int = 0, **columns: Array
) -> Run:
    """Sort a stream into a run with places from `first` on. O(n log n), no read-back.

    May overwrite `keys`. Without `keys` they are made of the `columns` src, dst and largest of `sort_keys`. Without
    `kinds` the run has no op.
    """
    keys, places = sort_keys(device, keys, **columns, with_places=True)
    kinds, weight = (None if column is None else device.gather(column, places) for column in (kinds, weight))
    places = device.astype(places, np.uint32) if places.dtype != np.uint32 else places
    if first:
        places += np.uint32(first)
    return Run(keys, kinds, weight, place=places)


class MixedStream:
    """Run of updates and queries, separated; `answer` then answers the queries.

    Parameters
    ----------
    device : Device
    run : Run
        From `sort_stream`, in local rows.
    stream : int8[n], optional
        The kinds of the run's operations in stream order, if the run has the whole stream, from place 0 on; then the
        run's op is not read. Answers are then in stream order, else in the order of the run, with their places.
    counts : sequence of 8 int, optional
        The number of operations of each kind. By default they are counted, with a wait for the device.
    largest : uint64[2], optional
        The largest src and dst of the stream, for `largest_ids`.

    Attributes
    ----------
    updates : Run
        The updates alone.

    Notes
    -----
    O(n). One read-back without `counts`, else none. Takes 21 bytes per update, 25 with a weight, 12 per query of a row
    and 8 per query of an edge.
    """

    def __init__(
        self, device: Device, run: Run, stream: Array = None, counts: Sequence[int] | None = None, largest: Array = None
    ) -> None:
        self.device, self._run, self._by_place = device, run, stream is not None
        self._kinds = run.op if stream is None else stream
        by_kind, by_part = self._counted(counts is None, largest)
        if counts is None:
            device.synchronize()
            counts = self._mail[:CLASSES].tolist()
        inserts, deletes, *asked, _ = counts
        self._asked: list[int] = asked
        self._split(by_kind, by_part, inserts + deletes, sum(asked[2:]), sum(asked[:2]))

    def largest_ids(self) -> tuple[int, int]:
        """Return the largest src and dst of the stream, after a wait for the device."""
        src, dst = self._mail[CLASSES:].tolist()
        return src, dst

    def _counted(self, tells: bool, largest: Array) -> tuple[Struct, Struct]:
        """Count the operations by `BY_KIND` in stream order, and by `BY_PART` in the run's order.

        Returns two stable partitions, in chunks for tiles. If it `tells`, the mailbox gets the count of each kind, and
        in any case `largest`.
        """
        # Tables of counts per chunk, and the two partitions.
        device, n = self.device, len(self._run)
        chunk = CHUNK[device.kind]
        chunks = -(-n // chunk)
        words = device.carve(*[(CLASSES * chunks, np.int64)] * 2, *[(CLASSES, np.int64)] * 2, (1, np.uint64))
        places = None, self._run.place if self._by_place else None
        by_kind, by_part = (
            Struct(kinds=self._kinds, at=at, n=n, table=table, chunk=chunk, chunks=chunks, ends=ends, first=first)
            for at, table, ends, first in zip(places, (BY_KIND, BY_PART), words[:2], words[2:4], strict=True)
        )

        # Count in one launch.
        mail = None
        if tells or largest is not None:
            self._mail, mail = device.mailbox(CLASSES + 2)
            self._mail[:] = 0
        device.fill(words[4], 0)
        load(device, "structures/mixed_stream.cuh").CountClasses(
            chunks, by_kind=by_kind, by_part=by_part, arrived=words[4], largest=largest, mail=mail
        )
        return by_kind, by_part

    def _split(self, by_kind: Struct, by_part: Struct, n_updates: int, n_rows: int, n_points: int) -> None:
        """Separate the run into updates, queries of rows and queries of edges."""
        device, run, kernels = self.device, self._run, load(self.device, "structures/mixed_stream.cuh")
        n, n_weights, word = n_rows + n_points, n_updates if run.weight is not None else 0, np.uint32
        keys, self._rows, weight, place, before, self._places, self._before, self._slots, op = device.carve(
            (n_updates, np.uint64), (n_rows, np.uint64), (n_weights, np.float32), (n_updates, word), (n_updates, word),
            (n, word), (n_points, word), (len(run) if n else 0, word), (n_updates, np.int8),
        )  # fmt: skip
        weight = None if run.weight is None else weight
        self.updates = Run(keys, op, weight)
        self._updates = Struct(keys=keys, op=op, weight=weight, place=place, asked=before, n=n_updates)
        tiles = by_part.values["chunks"] * (2 if n else 1)
        kernels.SplitRun(
            tiles, by=by_part, keys=run.keys, weight=run.weight, place=run.place, updates=self._updates,
            rows=self._rows, asked=self._places, before=self._before, n_rows=n_rows, by_kind=by_kind,
            slots=self._slots, tiles=tiles,
        )  # fmt: skip

    def answer(self, structure: Structure, outcome: Array) -> PendingResults:
        """Answer the queries before `structure` commits the updates, prepared with this outcome.

        O(q log n) for q queries of edges and of degrees. A row takes O((d + u) log u) for d edges and u updates of it
        in the run. All memory is allocated now. Waits only for queries of rows.

        Raises
        ------
        CapacityError
            The answers do not fit into memory, here or on the host.
        """
        # Allocate the answers together, so that they are fetched at once.
        device, (edges, weights, degrees, neighbors, predecessors) = self.device, self._asked
        n, n_rows, n_points = sum(self._asked), len(self._rows), len(self._before)
        numbers = -(-edges // 4) * 4  # offset of weights and degrees, behind the bools
        answers, zeros = device.carve((numbers + 4 * (n - edges), np.uint8), (n_rows + chunks_of(n_rows) + 1, np.int64))
        exists, words = answers[:edges], answers[numbers:].view(np.uint32)
        places = None if self._by_place else device.empty(n, np.uint32)
        rows = Csr(
            np.zeros(1, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32) if structure.weighted else None
        )
        if n:
            asked = Struct(
                kinds=self._kinds, place=self._run.place, asked=self._places, slots=self._slots,
                by_place=int(self._by_place), first=len(self.updates), places=places,
            )  # fmt: skip
            common = {"graph": (view := structure.view()), "queries": asked}
            into = {"words": words, "n_found": edges}
            kernels = load(device, "structures/query_results.cuh", view)
            if n_rows:
                device.fill(zeros, 0)
            changes, n_all = zeros[:n_rows], n_points + (len(self.updates) if n_rows else 0)
            kernels.EdgeResults(
                n_all, **common, updates=self._updates,
                degrees=Struct(outcome=outcome, rows=self._rows, n_rows=n_rows, changes=changes),
                first=n_rows, n=n_points, n_all=n_all, keys=self._run.keys, before=self._before,
                held=self._degrees_before(structure), found=exists, **into,
            )  # fmt: skip

            # Degrees by prefix sums of the changes; they are also the lengths of the rows to return.
            if n_rows:
                sums = changes.view(np.uint64)
                sums = Struct(words=sums, before=sum_chunks(device, sums, zeros[n_rows:].view(np.uint64)))
                kernels.DegreeResults(n_rows, **common, rows=self._rows, n=n_rows, changes=sums, **into)
            if neighbors + predecessors:
                rows = self._patched(kernels, common, outcome, words[weights + degrees :], structure.weighted)

        # Start the copies to the host.
        fetched = device.fetching(answers[: numbers + 4 * (weights + degrees)])
        placed = None if places is None else device.fetching(places)

        def answered() -> QueryResults:
            host = fetched()
            here = host[numbers:].view(np.uint32)
            return QueryResults(
                host[:edges].view(bool), here[:weights].view(np.float32), here[weights:],
                _part(rows, 0, neighbors), _part(rows, neighbors, neighbors + predecessors),
                None if placed is None else placed(),
            )  # fmt: skip

        of_rows = sum(column.nbytes for column in (rows.offsets, rows.dst, rows.weight) if column is not None)
        return PendingResults(
            edges + 4 * (weights + degrees) + (0 if places is None else places.nbytes) + of_rows, answered
        )

    def _degrees_before(self, structure: Structure) -> Array:
        """Search the queried edges, uint8[n], by a structure's own `_find`; None if it has none."""
        device, n = self.device, self._asked[0]
        if n == 0 or type(structure)._find is Structure._find:
            return None
        src, dst = device.empty(n, np.uint32), device.empty(n, np.uint32)
        asked = self._places[len(self._rows) : len(self._rows) + n]
        load(device, "structures/mixed_stream.cuh").EdgeEnds(n, keys=self._run.keys, asked=asked, n=n, src=src, dst=dst)
        return structure._find(src, dst, device.empty(n, np.uint8)).view(np.uint8)

    def _patched(self, kernels: Any, common: dict[str, Any], outcome: Array, lengths: Array, weighted: bool) -> Csr:
        """Return the requested rows, of these lengths, in host memory."""
        device = self.device
        offsets = device.zeros(len(lengths) + 1, np.int64)
        device.cumsum(lengths, out=offsets[1:])
        ends = device.fetch(offsets)
        dst = device.empty(int(ends[-1]), np.uint32)
        weight = device.empty(len(dst), np.float32) if weighted else None
        kernels.NeighborResults(
            len(self._rows), **common, updates=self._updates, outcome=outcome, rows=self._rows, n=len(self._rows),
            offsets=offsets, first=sum(self._asked[:3]), dst=dst, weight=weight,
        )  # fmt: skip
        return Csr(ends, device.fetch(dst), None if weight is None else device.fetch(weight))


def _part(csr: Csr, first: int, end: int) -> Csr:
    """Return the rows `first` to `end` - 1, as views."""
    a, b = int(csr.offsets[first]), int(csr.offsets[end])
    return Csr(csr.offsets[first : end + 1] - a, csr.dst[a:b], None if csr.weight is None else csr.weight[a:b])
