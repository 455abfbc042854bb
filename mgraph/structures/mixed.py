"""Streams of updates and queries: one sort of both, the updates apart, and an answer to each query as of its place.

The stream becomes a run, sorted by (row, dst, place in the stream); a query of a row has dst 0. `Mixed` separates it:

==================  ===========================================================  =======================================
part                order                                                        answered by
==================  ===========================================================  =======================================
updates             (row, dst, place): the run that a structure prepares
queries of edges    (row, dst, place), each with the number of updates before    the update before it, if it has the
                                                                                 same key, else the structure
queries of rows     (row, place)                                                 the row's degree and what the updates
                                                                                 before change at it; the row, patched
==================  ===========================================================  =======================================

A degree at a place needs the sum of what the row's updates before the place change. Each update adds its change, -1, 0
or 1, to the first query of its row after it, which a binary search finds; running sums over the queries do the rest. So
nothing is sorted again, and a row with many updates and many queries costs no more than others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import Struct, constants, load
from mgraph.structures.contract import Structure
from mgraph.structures.reads import Csr
from mgraph.structures.run import Run
from mgraph.structures.sort import sort_keys
from mgraph.structures.sums import running_sums

__all__ = ["Answers", "Mixed", "load_kernels", "sort_stream"]

Array = Any
_KINDS = constants("kernels/stream.cuh")
CLASSES = _KINDS["n_kinds"]
BY_KIND = sum(kind << 4 * kind for kind in range(CLASSES))  #: each kind is a class
#: of a run: updates, queries of rows, of edges and of weights, and the rest
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
CHUNK = {"cuda": 512, "cpu": 1 << 14}  #: operations that a tile counts


@dataclass(frozen=True)
class Answers:
    """The answers to the queries of one run, in host memory; each kind's in one order, that of `place`.

    Parameters
    ----------
    has_edge : bool[n]
    weight : float32[n]
        NaN where there is no edge.
    degree : uint32[n]
    neighbors, predecessors : Csr
    place : uint32[n] or None
        The places of all queries in the stream, kind after kind as above; None where each kind's ascend.
    """

    has_edge: np.ndarray
    weight: np.ndarray
    degree: np.ndarray
    neighbors: Csr
    predecessors: Csr
    place: np.ndarray | None

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        rows = (
            getattr(csr, name) for csr in (self.neighbors, self.predecessors) for name in ("offsets", "dst", "weight")
        )
        arrays = (self.has_edge, self.weight, self.degree, self.place, *rows)
        return sum(array.nbytes for array in arrays if array is not None)


def load_kernels(structure: Structure) -> None:
    """Compile what streams run on this structure, so that the first is as fast as later ones."""
    load(structure.device, "structures/mixed.cuh")
    load(structure.device, "structures/answers.cuh", structure.view())


def sort_stream(device: Device, keys: Array, kinds: Array, weight: Array = None, first: int = 0) -> Run:
    """A stream as a run with places, which count from `first`. O(n log n); no read-back; may overwrite `keys`."""
    keys, places = sort_keys(device, keys, with_places=True)
    kinds = device.gather(kinds, places)
    weight = None if weight is None else device.gather(weight, places)
    places = device.astype(places, np.uint32) if places.dtype != np.uint32 else places
    if first:
        places += np.uint32(first)
    return Run(keys, kinds, weight, place=places)


class Mixed:
    """A run of updates and queries, separated; `answer` then answers the queries.

    Parameters
    ----------
    device : Device
    run : Run
        Of `sort_stream`, in local rows.
    stream : int8[n], optional
        The kinds of the run's operations in stream order, if the run has the whole stream, from place 0 on. Answers are
        then in stream order, else in the order of the run, with their places.

    Attributes
    ----------
    updates : Run
        The updates alone.

    Notes
    -----
    O(n). One read-back. Takes 21 bytes an update, with a weight 25, 12 a query of a row and 8 a query of an edge.
    """

    def __init__(self, device: Device, run: Run, stream: Array = None) -> None:
        self.device, self._run, self._by_place = device, run, stream is not None
        by_kind, by_part, totals = _counted(device, (run.op if stream is None else stream, run.op))
        inserts, deletes, *asked, _ = totals
        self._asked: list[int] = asked
        self._split(by_kind, by_part, inserts + deletes, sum(asked[2:]), sum(asked[:2]))

    def _split(self, by_kind: Struct, by_part: Struct, n_updates: int, n_rows: int, n_points: int) -> None:
        """Take the run apart: so many updates, queries of rows and queries of edges."""
        device, run, kernels = self.device, self._run, load(self.device, "structures/mixed.cuh")
        n, n_weights, word = n_rows + n_points, n_updates if run.weight is not None else 0, np.uint32
        keys, self._rows, weight, place, before, self._places, self._before, self._slots, op = device.carve(
            (n_updates, np.uint64), (n_rows, np.uint64), (n_weights, np.float32), (n_updates, word), (n_updates, word),
            (n, word), (n_points, word), (len(run) if n else 0, word), (n_updates, np.int8),
        )  # fmt: skip
        weight = None if run.weight is None else weight
        self.updates = Run(keys, op, weight)
        self._updates = Struct(keys=keys, op=op, weight=weight, place=place, asked=before, n=n_updates)
        chunks = by_part.values["chunks"]
        kernels.PlaceClasses(chunks if n else 0, by=by_kind, to=self._slots)
        kernels.SplitRun(
            chunks, by=by_part, keys=run.keys, weight=run.weight, place=run.place, updates=self._updates,
            rows=self._rows, asked=self._places, before=self._before, n_rows=n_rows,
        )  # fmt: skip

    def answer(self, structure: Structure, outcome: Array) -> Answers:
        """The answers as of before the updates are committed, which `structure` has prepared with this outcome.

        O(q log n) for q queries of edges and of degrees. A row takes O((d + u) log u) for d edges and u updates of it
        in the run. Five read-backs at most.

        Raises
        ------
        CapacityError
            There is no memory for the answers, here or on the host.
        """
        device, (edges, weights, degrees, neighbors, predecessors) = self.device, self._asked
        n = sum(self._asked)
        numbers = -(-edges // 4) * 4  # where they begin, behind what was found: all is fetched at once
        answers = device.empty(numbers + 4 * (n - edges), np.uint8)
        found, words = answers[:edges], answers[numbers:].view(np.uint32)
        places = None if self._by_place else device.empty(n, np.uint32)
        rows = Csr(
            np.zeros(1, np.int64), np.empty(0, np.uint32), np.empty(0, np.float32) if structure.weighted else None
        )
        if n:
            asked = Struct(
                kinds=self._run.op, place=self._run.place, asked=self._places, slots=self._slots,
                by_place=int(self._by_place), first=len(self.updates), places=places,
            )  # fmt: skip
            given = {"graph": (view := structure.view()), "queries": asked}
            into = {"words": words, "n_found": edges}
            kernels = load(device, "structures/answers.cuh", view)
            kernels.PointAnswers(
                len(self._before), **given, updates=self._updates, first=len(self._rows), n=len(self._before),
                keys=self._run.keys, before=self._before, held=self._held(structure), found=found, **into,
            )  # fmt: skip
            if len(self._rows):
                self._degrees(kernels, given, outcome, into)
            if neighbors + predecessors:
                rows = self._patched(kernels, given, outcome, words[weights + degrees :], structure.weighted)
        host = device.fetch(answers[: numbers + 4 * (weights + degrees)])
        here = host[numbers:].view(np.uint32)
        return Answers(
            host[:edges].view(bool), here[:weights].view(np.float32), here[weights:],
            _part(rows, 0, neighbors), _part(rows, neighbors, neighbors + predecessors),
            None if places is None else device.fetch(places),
        )  # fmt: skip

    def _held(self, structure: Structure) -> Array:
        """Whether the structure has the edge of each query of an edge, uint8[n]; None unless its search is its own."""
        device, n = self.device, self._asked[0]
        if n == 0 or type(structure)._find is Structure._find:
            return None
        src, dst = device.empty(n, np.uint32), device.empty(n, np.uint32)
        asked = self._places[len(self._rows) : len(self._rows) + n]
        load(device, "structures/mixed.cuh").EdgeEnds(n, keys=self._run.keys, asked=asked, n=n, src=src, dst=dst)
        return structure._find(src, dst, device.empty(n, np.uint8)).view(np.uint8)

    def _degrees(self, kernels: Any, given: dict[str, Any], outcome: Array, into: dict[str, Any]) -> None:
        """Write the degree for each query of a row; it is the length of the row that a query for neighbours gets."""
        device, n = self.device, len(self._rows)
        changes = device.zeros(n, np.int64)
        kernels.DegreeChanges(
            len(self.updates), updates=self._updates, outcome=outcome, rows=self._rows, n_rows=n, changes=changes,
        )  # fmt: skip
        running_sums(device, changes)
        kernels.RowDegrees(n, **given, rows=self._rows, n=n, changes=changes, **into)

    def _patched(self, kernels: Any, given: dict[str, Any], outcome: Array, lengths: Array, weighted: bool) -> Csr:
        """The rows that are asked for, of these lengths, in host memory."""
        device = self.device
        offsets = device.zeros(len(lengths) + 1, np.int64)
        device.cumsum(lengths, out=offsets[1:])
        ends = device.fetch(offsets)
        dst = device.empty(int(ends[-1]), np.uint32)
        weight = device.empty(len(dst), np.float32) if weighted else None
        kernels.PatchedRows(
            len(self._rows), **given, updates=self._updates, outcome=outcome, rows=self._rows, n=len(self._rows),
            offsets=offsets, first=sum(self._asked[:3]), dst=dst, weight=weight,
        )  # fmt: skip
        return Csr(ends, device.fetch(dst), None if weight is None else device.fetch(weight))


def _counted(device: Device, kinds: tuple[Array, Array]) -> tuple[Struct, Struct, list[int]]:
    """Operations in stream order and in that of the run as partitions, by `BY_KIND` and by `BY_PART`; and the totals.

    A partition is stable, and dealt to tiles in chunks. The totals are how many operations each kind has; they wait for
    the device, once.
    """
    n, chunk = len(kinds[0]), CHUNK[device.kind]
    chunks = -(-n // chunk)
    words = device.carve(*[(CLASSES * chunks, np.int64)] * 2, *[(CLASSES, np.int64)] * 2, (1, np.uint64))
    by_kind, by_part = (
        Struct(kinds=its, n=n, table=table, chunk=chunk, chunks=chunks, ends=ends, first=first)
        for its, table, ends, first in zip(kinds, (BY_KIND, BY_PART), words[:2], words[2:4], strict=True)
    )
    totals, mailbox = device.mailbox(CLASSES)
    device.fill(words[4], 0)
    load(device, "structures/mixed.cuh").CountClasses(
        chunks, by_kind=by_kind, by_part=by_part, arrived=words[4], totals=mailbox
    )
    if not chunks:
        return by_kind, by_part, [0] * CLASSES
    device.synchronize()
    return by_kind, by_part, totals.tolist()


def _part(csr: Csr, first: int, end: int) -> Csr:
    """The rows `first` to `end` - 1, as views."""
    a, b = int(csr.offsets[first]), int(csr.offsets[end])
    return Csr(csr.offsets[first : end + 1] - a, csr.dst[a:b], None if csr.weight is None else csr.weight[a:b])
