"""graphvine: a look at a batch before it is written: its rows, where its edges are in them, and what it will need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mgraph.kernels import Struct
from mgraph.structures.contract import Counts
from mgraph.structures.graphvine_pool import Needs
from mgraph.structures.run import Run

if TYPE_CHECKING:
    from mgraph.structures.graphvine import GraphVine

__all__ = ["COUNTERS", "STATUS", "WORDS_OF_PIECE", "Look", "join", "look"]

Array = Any
CHUNK, COUNTERS = 128, 8  # as graphvine_batch.cuh has them
HUB_EXTENT = 512  # as graphvine_join.cuh has it
WORDS_OF_PIECE = 6  # of graphvine_relayout.cuh's Piece
# words of status, as graphvine_prepare.cuh has them; the counters come behind them
ALL_MOVES, UPDATES, MISSES, HUB_PIECES, UNKNOWN, ROW_PIECES, PIECES_LISTED, FIRST_COUNTER = range(8)
STATUS = FIRST_COUNTER + COUNTERS


class Rows(NamedTuple):
    """The rows of sorted keys, and where the keys are in them; see Batch in graphvine_batch.cuh."""

    owner: Array
    end: Array
    position: Array
    held: Array


@dataclass
class Look:
    """What `look` found."""

    batch: Struct
    holes: Struct
    sums: Array  # what the rows of each chunk of keys need
    outcome: Array
    status: Array
    words: list[int]

    @property
    def counts(self) -> Counts:
        """What the batch does."""
        moves = self.words[ALL_MOVES]
        return Counts(moves >> 32, self.words[UPDATES], moves & 0xFFFFFFFF, self.words[MISSES])

    @property
    def needs(self) -> Needs:
        """What it takes from the queues and gives back."""
        return Needs.read(self.words[FIRST_COUNTER:])

    @property
    def unknown(self) -> int:
        """How many keys have an id that is not there."""
        return self.words[UNKNOWN]

    @property
    def pieces_listed(self) -> Array:
        """Where the layout counts pieces of rows."""
        return self.status[PIECES_LISTED:]

    def plan_layout(self, device: Any) -> Array:
        """Sum the needs up, and take room for the pieces of rows that have very much to do; None where none has."""
        device.xp.cumsum(self.sums, out=self.sums)
        n = self.words[ROW_PIECES]
        return device.empty(WORDS_OF_PIECE * n, np.int64) if n else None


def join(s: GraphVine, keys: Array, status: Array, **zeros: Array) -> Rows:
    """The rows of sorted keys, and each key's position in its row, 2**32 - 1 where it is not there."""
    n, device, kernels, graph = len(keys), s.device, s.kernels["join"], s.view()
    held, owner, end, position = device.carve((n, np.uint64), *[(n, np.uint32)] * 3)
    cleared = {**dict.fromkeys(("moves", "used", "listed", "gone")), **zeros}
    kernels.ListRows(
        n, keys=keys, n=n, rows=s.n_rows, vertices=s.n_vertices, unknown=status[UNKNOWN:], owner=owner, end=end,
        position=position, **cleared,
    )  # fmt: skip
    pieces = device.empty(len(s.pool.slots) // HUB_EXTENT, np.uint64)  # a long row has more slots
    found = {"graph": graph, "keys": keys, "end": end, "position": position, "pieces": pieces}
    kernels.Join(n, **found, owner=owner, n=n, held=held, n_pieces=status[HUB_PIECES:])
    kernels.JoinHubs(len(pieces), **found, n_pieces=status[HUB_PIECES:])
    return Rows(owner, end, position, held)


def look(s: GraphVine, run: Run) -> Look:
    """Find out what becomes of each key of a run, and what its rows need. Changes nothing; one read-back."""
    n, device, kernels = len(run), s.device, s.kernels["prepare"]
    chunks = -(-n // CHUNK)
    status, outcome = device.zeros(STATUS, np.int64), device.empty(n, np.uint8)
    moves, sums, used = device.carve((n, np.uint64), (chunks * COUNTERS, np.int64), (n, np.uint32))
    at = listed = gone = None
    if run.op is not None and s.compact:
        at, listed, gone = device.carve((n, np.uint32), (n, np.uint32), (n, np.uint8))
    rows = join(s, run.keys, status, moves=moves, used=used, listed=listed, gone=gone)
    kernels.Outcomes(
        n, keys=run.keys, op=run.op, position=rows.position, owner=rows.owner, n=n, outcome=outcome, moves=moves,
        status=status,
    )  # fmt: skip
    batch = Struct(keys=run.keys, **rows._asdict(), moves=moves, outcome=outcome, n=n)
    holes, graph = Struct(at=at, listed=listed, used=used, gone=gone), s.view()
    if at is not None:
        kernels.ListHoles(n, graph=graph, batch=batch, holes=holes)
    kernels.CountNeeds(chunks, graph=graph, batch=batch, counts=sums, status=status)
    return Look(batch, holes, sums, outcome, status, device.to_host(status).tolist())
