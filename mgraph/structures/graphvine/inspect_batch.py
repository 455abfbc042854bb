"""Inspection of a batch by graphvine: rows, positions of edges, and needs.

The memory for this, and the kernels bound to it, may serve many batches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.kernels import Struct, constants
from mgraph.structures.graphvine.pool import Needs
from mgraph.structures.plan import Counts
from mgraph.structures.run import Run

__all__ = ["BatchInspection", "GraphVineScratch", "TouchedRows"]

GraphVine = Any  # the class in structure.py, which imports this module

Array = Any
_BATCH, _JOIN = constants("structures/graphvine/prepare.cuh"), constants("structures/graphvine/membership.cuh")
CHUNK, GROUP, COUNTERS = (_BATCH[name] for name in ("chunk", "group", "counters"))
HUB_EXTENT, STRETCH_SLOTS, LONG_RUN = (_JOIN[name] for name in ("hub_extent", "stretch_slots", "long_run"))
WORDS_OF_STRETCH = _JOIN.size("Stretch") // 8
TILES = 1 << 13  # minimum of tiles that join stretches, about as many as a GPU holds: a key's row may have many
WORDS_OF_PIECE = constants("structures/graphvine/reserve_blocks.cuh").size("Piece") // 4
AT = {name: _BATCH[name] for name in _BATCH.enums["Status"]}  # words of the status
STATUS = AT["first_counter"]  # number of words; in the mailbox the counters follow them


class TouchedRows:
    """Memory for `capacity` sorted keys and their rows, and the kernels that join them.

    Attributes
    ----------
    owner, end, position : uint32[capacity] on the device
        As in Batch of ``batch.cuh``. `position` is the position of each key's edge in its row, 2**32 - 1 if it does not
        exist.
    held : uint64[capacity]
    status, arrived, sums : int64[STATUS], uint64[1], int64[...]
        Zeros before a batch. `sums` counts its rows' needs, by groups of chunks.
    """

    def __init__(self, s: GraphVine, capacity: int, **fresh: Array) -> None:
        self.device, kernels, graph = s.device, s.kernels["membership"], s.view()
        # Bound of the stretches: a long row has more than HUB_EXTENT slots, a long run more than LONG_RUN keys.
        slots = len(s.pool.slots)
        most = min(slots // HUB_EXTENT, slots // STRETCH_SLOTS + capacity) + capacity // LONG_RUN
        self.words, self.held, stretches, self.owner, self.end, self.position, self.filters = s.device.carve(
            (STATUS + 1 + COUNTERS * (capacity // (CHUNK * GROUP) + 1), np.int64), (capacity, np.uint64),
            (WORDS_OF_STRETCH * most, np.uint64), *[(capacity, np.uint32)] * 4,
        )  # fmt: skip
        self.device.fill(self.filters, 0)  # kernels reset it after use
        self.status, self.arrived = self.words[:STATUS], self.words[STATUS:].view(np.uint64)
        self.sums = self.words[STATUS + 1 :]

        # Bind the kernels, once for many batches.
        listed = {"stretches": stretches, "n_stretches": self.status[AT["stretches"] :]}
        common = {"graph": graph, "position": self.position, "filters": self.filters, **listed}
        self._join = kernels.FindKeys.bind(
            rows=s.n_rows, vertices=s.n_vertices, unknown=self.status[AT["unknown"]:],
            long_runs=self.status[AT["long_runs"]:],
            owner=self.owner, end=self.end, held=self.held,
            fresh=Struct(**{**dict.fromkeys(("moves", "used", "listed", "gone")), **fresh}), **common,
        )  # fmt: skip
        self._join_hubs = kernels.FindKeysOfHubs.bind(**common)
        self._stretches = most

    def join(self, keys: Array) -> None:
        """Find each sorted key's row and its position there. Two launches."""
        n = len(keys)
        self.device.fill(self.words, 0)
        self._join(n, keys=keys, n=n)
        self._join_hubs(min(self._stretches, max(4 * n, TILES)), keys=keys)  # tiles stride over the stretches


class BatchInspection:
    """Result of the inspection of a batch.

    Attributes
    ----------
    counts : Counts
        The outcomes.
    needs : Needs
        Pieces taken from the queues and given back.
    unknown : int
        The number of keys with ids out of range.
    """

    def __init__(self, scratch: GraphVineScratch, batch: Struct, words: list[int]) -> None:
        self.scratch, self.batch, moves = scratch, batch, words[AT["all_moves"]]
        self.counts = Counts(moves >> 32, words[AT["updates"]], moves & 0xFFFFFFFF, words[AT["misses"]])
        self.needs, self.unknown = Needs.read(words[STATUS:]), words[AT["unknown"]]
        self._row_pieces = words[AT["row_pieces"]]

    def room_for_pieces(self) -> Array:
        """Allocate the pieces of rows with very much work; None if no row has that."""
        n = self._row_pieces
        return self.scratch.device.empty(WORDS_OF_PIECE * n, np.uint32) if n else None


class GraphVineScratch:
    """Memory for a batch of `capacity` operations, 55 bytes each, and the kernels bound to it.

    Parameters
    ----------
    s : GraphVine
        `bind` binds the kernels to its current pool.
    capacity : int
    deletes : bool
        True if the batch may have deletions.
    """

    def __init__(self, s: GraphVine, capacity: int, deletes: bool) -> None:
        device = self.device = s.device
        self.capacity = capacity
        chunks = -(-capacity // CHUNK)
        holes = capacity if deletes and s.compact else 0
        self.moves, of_chunks, used, at, listed, gone, self.outcome, self.roots = device.carve(
            (capacity, np.uint64), (COUNTERS * chunks, np.uint32), (capacity, np.uint32), *[(holes, np.uint32)] * 2,
            (holes, np.uint8), (capacity, np.uint8), (capacity, np.uint32),
        )  # fmt: skip
        self.holes = Struct(at=at, listed=listed, used=used, gone=gone)
        cleared = {"listed": listed, "gone": gone} if holes else {}
        self.rows = rows = TouchedRows(s, capacity, moves=self.moves, used=used, **cleared)
        self.mail, mailbox = device.mailbox(STATUS + COUNTERS)
        self.sums = Struct(of_chunks=of_chunks, of_groups=rows.sums)

        # Bind the kernels of prepare, then those of commit.
        kernels, graph = s.kernels["prepare"], s.view()
        self._outcomes = kernels.Outcomes.bind(
            position=rows.position, owner=rows.owner, outcome=self.outcome, moves=self.moves, filters=rows.filters,
            status=rows.status,
        )  # fmt: skip
        self._list_holes = kernels.ListHoles.bind(graph=graph, holes=self.holes) if holes else None
        self._count_needs = kernels.CountNeeds.bind(
            graph=graph, sums=self.sums, arrived=rows.arrived, status=rows.status, mailbox=mailbox
        )
        self.bind(s)

    def bind(self, s: GraphVine) -> None:
        """Bind commit's kernels to the scratch and to the pool."""
        kernels, both = s.kernels["commit"], {"graph": s.view(), "pool": s.pool_struct()}
        self.move_tails = kernels.MoveTails.bind(**both, holes=self.holes)
        self._insert = (kernels.Insert if s.split else kernels.InsertByRow).bind(**both, holes=self.holes)
        kernels, listed = s.kernels["reserve_blocks"], self.rows.status[AT["pieces_listed"] :]
        self._reserve_blocks = kernels.ReserveBlocks.bind(**both, sums=self.sums, roots=self.roots, n_pieces=listed)
        self._reserve_pieces = kernels.ReserveBlocksByPiece.bind(**both, roots=self.roots, n_pieces=listed)

    def inspect(self, run: Run) -> BatchInspection:
        """Find each key's outcome, and the needs of its rows. Changes nothing; waits once."""
        # Positions, outcomes, holes and needs, each by a launch or two.
        n, rows = len(run), self.rows
        rows.join(run.keys)
        self._outcomes(n, keys=run.keys, op=run.op, n=n)
        batch = Struct(
            keys=run.keys, owner=rows.owner, end=rows.end, held=rows.held, moves=self.moves, position=rows.position,
            outcome=self.outcome, n=n,
        )  # fmt: skip
        if self._list_holes and run.op is not None:
            self._list_holes(n, batch=batch)
        self._count_needs(-(-n // CHUNK), batch=batch)
        self.device.synchronize()  # the only wait for the device
        return BatchInspection(self, batch, self.mail.tolist())

    def reserve_blocks(self, batch: Struct, queues: Struct, pieces: Array) -> None:
        """Reserve the blocks that every touched row will use."""
        taken = {"batch": batch, "queues": queues, "pieces": pieces}
        self._reserve_blocks(-(-batch.values["n"] // CHUNK), **taken)
        if pieces is not None:
            self._reserve_pieces(len(pieces) // WORDS_OF_PIECE, **taken)

    def insert(self, batch: Struct, weight: Array, moved: bool) -> None:
        """Write every new edge; `moved` if the pool was rebuilt, so that no blocks were reserved."""
        self._insert(batch.values["n"], batch=batch, weight=weight, roots=None if moved else self.roots)
