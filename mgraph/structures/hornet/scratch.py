"""Memory in which hornet prepares and commits a batch, and the result of its inspection."""

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
WORDS, TOLD = _SOURCE["all_words"], _SOURCE["told"]  # words counted by prepare, and those sent to the host
BY_WARPS, BY_FEW_LANES = _SOURCE["rows_by_warps"], _SOURCE["rows_by_few_lanes"]  # rows per block of Merge


def _getter(*names: str) -> Callable[[list[int]], Any]:
    return itemgetter(*(_SOURCE[name] for name in names))


_COUNTS = _getter("inserts", "updates", "deletes", "misses")
_NEEDS = _getter("taken", "slots_gained", "opens", "spans", "bares", "array_end")
_ROWS = _getter("few_rows", "some_rows", "many_rows", "huge_rows")
_OTHERS = _getter("unknown", "pieces", "saved")


class BatchInspection:
    """Result of the inspection of a batch.

    Attributes
    ----------
    counts : Counts
        The outcomes.
    needs : Needs
    rows : tuple of int
        The number of changed rows to merge by 8 lanes, by 32, by a block, and by blocks in pieces.
    pieces, saved : int
        Of the last ones: the number of pieces, and of edges to copy beforehand.
    unknown : int
        The number of keys with ids out of range.
    """

    def __init__(self, words: list[int]) -> None:
        self.counts, self.needs, self.rows = Counts(*_COUNTS(words)), Needs(*_NEEDS(words)), _ROWS(words)
        self.unknown, self.pieces, self.saved = _OTHERS(words)


class HornetScratch:
    """Memory for a batch of `capacity` operations, 41 bytes each, and a word per array of the pool."""

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

    def inspect(
        self, kernels: Library, run: Run, graph: View, arrays: Struct, count: int, rows: int, vertices: int
    ) -> BatchInspection:
        """Find each key's outcome, and the needs of its rows. Changes nothing; waits once.

        `arrays` are the pool's `count` arrays.
        """
        # Locate the keys, then count the needs of their rows.
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
        device.synchronize()  # the only wait for the device
        return BatchInspection(self.mail.tolist())

    def batch(self, run: Run) -> Struct:
        """Return an inspected run for kernels."""
        return Struct(
            keys=run.keys, outcome=self.outcome, place=self.place, before=self.before, chunks=self.chunks,
            shift=self.shift, end=self.end, held=self.held, drawn=self.drawn, n=len(run),
        )  # fmt: skip
