"""The memory in which hornet prepares and commits a batch, and what a look at the batch finds."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from mgraph.device import Device
from mgraph.kernels import Library, Struct, View, constants
from mgraph.structures.hornet.pool import Needs
from mgraph.structures.plan import Counts
from mgraph.structures.run import Run
from mgraph.structures.shift_sums import chunk_shift

__all__ = ["BY_FEW_LANES", "BY_WARPS", "BatchInspection", "HornetScratch"]

Array = Any
_SOURCE = constants("structures/hornet/arrays.cuh")
WORDS, TOLD = _SOURCE["all_words"], _SOURCE["told"]  # how many prepare counts, and how many of them the host is told
BY_WARPS, BY_FEW_LANES = _SOURCE["rows_by_warps"], _SOURCE["rows_by_few_lanes"]  # rows that a block merges at a time


def _getter(*names: str) -> Callable[[list[int]], Any]:
    return itemgetter(*(_SOURCE[name] for name in names))


_COUNTS = _getter("inserts", "updates", "deletes", "misses")
_NEEDS = _getter("taken", "slots_gained", "opens", "spans", "bares", "array_end")
_ROWS = _getter("few_rows", "some_rows", "many_rows", "huge_rows")
_OTHERS = _getter("unknown", "pieces", "saved")


class BatchInspection:
    """What a look at a batch found.

    Attributes
    ----------
    counts : Counts
        What it does.
    needs : Needs
    rows : tuple of int
        How many rows change, by what merges them: 8 lanes, 32, a block, or blocks in pieces.
    pieces, saved : int
        For the last ones: the number of pieces, and of edges that have to be copied beforehand.
    unknown : int
        How many keys have an id out of range.
    """

    def __init__(self, words: list[int]) -> None:
        self.counts, self.needs, self.rows = Counts(*_COUNTS(words)), Needs(*_NEEDS(words)), _ROWS(words)
        self.unknown, self.pieces, self.saved = _OTHERS(words)


class HornetScratch:
    """Memory for a batch of up to `capacity` operations, 41 bytes each; and a word for each of the pool's arrays."""

    def __init__(self, device: Device, capacity: int, arrays: int) -> None:
        self.device, self.capacity, self.shift = device, capacity, chunk_shift(capacity)
        (
            self.chunks, self.held, self.words, self.before, self.place, self.end, self.drawn, self.blocks, *lists,
            self.ranks, self.outcome,
        ) = device.carve(
            ((capacity >> self.shift) + 1, np.uint64), (capacity, np.uint64), (WORDS, np.int64),
            (capacity + 1, np.uint32), *[(capacity, np.uint32)] * 7, (arrays, np.uint32), (capacity, np.uint8),
        )  # fmt: skip
        few, some, self.many = lists
        self.lists = Struct(few=few, some=some, many=self.many, capacity=capacity)
        self.mail, self.mailbox = device.mailbox(TOLD)

    def look(
        self, kernels: Library, run: Run, graph: View, arrays: Struct, count: int, rows: int, vertices: int
    ) -> BatchInspection:
        """Find out what becomes of each key of a run, and what its rows need. Changes nothing; waits once.

        `arrays` are the pool's, of which there are `count`.
        """
        n, device, words = len(run), self.device, self.words
        if len(self.ranks) < count:
            self.ranks = device.empty(count, np.uint32)
        device.fill(words, 0)
        moves = {"before": self.before, "chunks": self.chunks, "shift": self.shift}
        kernels.Locate(
            (n >> self.shift) + 2, keys=run.keys, op=run.op, n=n, graph=graph, rows=rows, vertices=vertices,
            place=self.place, outcome=self.outcome, **moves, arrays=arrays, ranks=self.ranks, at=words,
        )  # fmt: skip
        kernels.Needs(
            n, keys=run.keys, n=n, graph=graph, rows=rows, **moves, end=self.end, held=self.held, drawn=self.drawn,
            lists=self.lists, arrays=arrays, at=words, mailbox=self.mailbox,
        )  # fmt: skip
        device.synchronize()  # the one wait for the device
        return BatchInspection(self.mail.tolist())

    def batch(self, run: Run) -> Struct:
        """What kernels take of a run that was looked at."""
        return Struct(
            keys=run.keys, outcome=self.outcome, place=self.place, before=self.before, chunks=self.chunks,
            shift=self.shift, end=self.end, held=self.held, drawn=self.drawn, n=len(run),
        )  # fmt: skip
