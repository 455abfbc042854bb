"""graphvine: every row a list of blocks of edges, taken from and given back to queues of free blocks.

::

    sentinels   row 0: degree 5, root --> block [ 7 2 9 4 3 . . . ]                        a row that one block holds
    (8 bytes    row 1: degree 2, root --> quarter [ 5 1 ]                                  or a quarter, or a half of one
     a row)     row 2: degree 19, root --> directory [ room | A | B | C ]   A [ 8 edges ]  B [ 8 edges ]  C [ 3 edges ]
    slots       [ 7 2 9 4 3 . . . | 5 1 | ..A.. | room A B C | ..B.. | ..C.. |  never used yet ...  ]
    rings       quarters [ 4 9 ]   halves [ ]   blocks [ 30 22 ]                           places that were given back

A row's edges are numbered 0 .. degree - 1 in no order, and edge i is in block i // block: an insert goes behind the last, a
deletion leaves a hole that an insert of the same batch fills, or else the row's last edge. (Krishnan, Tavva, Nasre:
GraphVine: A Data Structure to Optimize Dynamic Graph Processing on GPUs.) prepare reads every touched row once and seeks
its edges in the row's run of the batch; from counts and prefix sums follows where each edge and each block goes; commit
changes edges in place, gives every touched row its blocks (the tree fixed first), and then inserts with a lane an edge.
The paper leaves open, and this adds, each with an option that keeps the paper's way:

- Duplicates, within a batch and against the graph: counts are exact.
- `compact`: holes are filled, emptied blocks go back to their queue, and the pool follows the live edges. Without it
  deleted edges keep their slots, as in the paper, until their row is empty.
- `fine`: a row of at most a half or a quarter of a block gets just that, and the block size follows the mean degree
  whenever the pool is made anew. Without it the first batch sets the one size of all blocks.
- `directory`: the complete binary tree of a row's blocks is kept as an array in its breadth-first order, so that a block
  is found in O(1). Without it blocks point to their children, and one is found along its bit string.
- `split`: the tree is fixed before edges are inserted, by a lane an edge. Without it a lane inserts a whole row.

Where the queues run dry the pool is made anew, 80 % full (`reserve`), all rows one after another: this is also how
memory is given back, and how directories that were outgrown and pieces of unused sizes vanish.

What it is bad at: a batch reads the rows that it touches, so one that touches hubs reads them whole, however few edges
it has there: 4 bytes an edge of theirs. A query about one edge is O(degree), many about one row are answered together.

Invariants
----------
1. The sentinels are a power of two, at least n_rows; those past n_rows are 0; their degrees add up to num_edges.
2. Blocks and directories of rows, the pieces in the rings, and the quanta never used do not overlap and lie in the pool.
3. A row of n positions has ceil(n / block) blocks; one that is fine has a piece of the smallest size that holds it.
4. A directory has room for its row's blocks.
5. The live edges of a row differ and are below n_vertices; there are as many as its degree.
6. No position holds a dead edge if the structure is compact; no row without edges has positions.
7. As many rows as counted have edges, and blocks have as many quanta as counted.
8. No weight of a live edge is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.kernels import Struct, View, load
from mgraph.structures.contract import Counts, Plan, Structure
from mgraph.structures.graphvine_check import check_graphvine
from mgraph.structures.run import Run, make_keys, sort_with_places

__all__ = ["GraphVine"]

Array = Any
CLASSES = 3  # a quarter, a half and a whole of a block: 1, 2 and 4 quanta
CHUNK, HUB_EXTENT, PIECE = 128, 512, 1024  # as graphvine_batch.cuh, graphvine_join.cuh and graphvine_rebuild.cuh have them
FIRST_COUNTER, COUNTERS = 5, 8  # of status, as graphvine_prepare.cuh has them
PARTS = ("join", "prepare", "commit", "rebuild")


@dataclass(frozen=True)
class _Pool:
    """A pool of slots and what goes with it; lengths in quanta."""

    shift: int  # log2 of a block's slots; a quantum is a quarter of a block
    quanta: int
    ring: int  # the length of each ring

    @property
    def slots(self) -> int:
        return self.quanta << (self.shift - 2)


@dataclass(frozen=True)
class _Queues:
    """By class: where each ring begins and how many wait in it; then the first quantum never used."""

    head: tuple[int, ...] = (0,) * CLASSES
    waiting: tuple[int, ...] = (0,) * CLASSES
    fresh: int = 0


@dataclass
class _Rebuild:
    """A new pool for all rows, and each row's place in it."""

    pool: _Pool
    arrays: dict[str, Array]
    places: Array
    grown: Array
    used: int  # quanta, by blocks and directories
    live: int  # by blocks


@dataclass
class _Work:
    """What a commit needs, all of it allocated."""

    batch: Struct
    counts: Array  # what each chunk of touched rows needs, summed up
    pops: tuple[int, ...]
    pushes: tuple[int, ...]
    directories: int
    filled: int
    touched: int
    flags: Array
    holes: Array
    rebuild: _Rebuild | None = None


class GraphVine(Structure):
    """Rows as lists of blocks from pre-allocated queues.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    block : int, optional
        Edges a block, a power of two from 4 to 128. Where it is left out: the mean degree of the rows with edges,
        rounded up.
    reserve : float
        Share of what the rows need that a new pool has beyond it. A quarter makes it 80 % full.
    fine, compact, directory, split : bool
        What this does beyond the paper; see the module. All four False are the paper's plain version.

    Notes
    -----
    A batch of b operations costs O(b log b) and the degrees of the rows that it touches; about 14 launches and one
    read-back; a second read-back where the pool is made anew, which costs O(n_rows + m) and is amortised. 4 bytes a
    slot, 8 with weights, 8 a row rounded up to a power of two. Neighbours are not sorted.
    """

    name: ClassVar[str] = "graphvine"
    sorted_rows: ClassVar[bool] = False

    def __init__(
        self,
        n_rows: int,
        n_vertices: int,
        device: Device,
        weighted: bool,
        *,
        block: int | None = None,
        reserve: float = 0.25,
        fine: bool = True,
        compact: bool = True,
        directory: bool = True,
        split: bool = True,
    ) -> None:
        super().__init__(n_rows, n_vertices, device, weighted)
        if block is not None and block not in (4, 8, 16, 32, 64, 128):
            raise InvalidOption(f"block of {block} edges; 4, 8, 16, 32, 64 or 128")
        if not 0.01 <= reserve <= 16:
            raise InvalidOption(f"reserve of {reserve}; from 0.01 to 16")
        self.block, self.reserve = block, reserve
        self.fine, self.compact, self.directory, self.split = fine, compact, directory, split
        defines = {"TREE": int(not directory), "LAZY": int(not compact)}
        self._defines = tuple(defines.items())
        self._kernels = {part: load(device, f"graphvine_{part}.cuh", **defines) for part in PARTS}
        self.sentinels = device.zeros(_power(n_rows), np.uint64)
        self.extents = None if compact else device.zeros(_power(n_rows), np.uint32)
        self._use_pool(_Pool(2, 0, 0), self._new_arrays(_Pool(2, 0, 0)))
        self.queues = _Queues()
        self.filled = self.live = 0  # rows with edges; quanta of their blocks

    def _new_arrays(self, pool: _Pool) -> dict[str, Array]:
        empty = self.device.empty
        return {
            "slots": empty(pool.slots, np.uint32),
            "weights": empty(pool.slots, np.float32) if self.weighted else None,
            "children": None if self.directory else empty(pool.quanta // 2 + 2, np.uint32),
            "rings": empty(CLASSES * pool.ring, np.uint32),
        }

    def _use_pool(self, pool: _Pool, arrays: dict[str, Array]) -> None:
        self.pool = pool
        self.slots, self.weights, self.children, self.rings = (
            arrays[name] for name in ("slots", "weights", "children", "rings")
        )

    # --- prepare ---

    def prepare(self, run: Run) -> Plan:
        n, device = len(run), self.device
        if n >= 1 << 31:
            raise CapacityError(f"a run of {n} operations; at most {(1 << 31) - 1} at once")
        if n == 0:
            return Plan(run, Counts(), device.empty(0, np.uint8), (), self._state)
        status = device.zeros(FIRST_COUNTER + COUNTERS, np.int64)
        rows, position = self._join(run.keys, status)
        outcome, moves = device.carve((n, np.uint8), (n + 1, np.uint64))
        kernels, xp = self._kernels["prepare"], device.xp
        kernels.Outcomes(
            n, keys=run.keys, op=run.op, position=position, n=n, outcome=outcome, moves=moves, status=status
        )
        xp.cumsum(moves, out=moves)
        batch = Struct(keys=run.keys, **rows, position=position, outcome=outcome, moves=moves, n=n)
        flags = holes = None
        if run.op is not None and self.compact:
            flags, holes = device.zeros(n + 1, np.uint64), device.empty(n, np.uint32)
            kernels.MarkTails(n, graph=self.view(), batch=batch, halves=flags.view(np.uint32))
            xp.cumsum(flags, out=flags)
        needs = device.empty(-(-n // CHUNK) * COUNTERS, np.int64)
        kernels.CountNeeds(-(-n // CHUNK), graph=self.view(), batch=batch, counts=needs)
        xp.cumsum(needs, out=needs)
        kernels.Totals(COUNTERS, batch=batch, counts=needs, status=status)
        words = device.to_host(status).tolist()  # the one read-back of most batches
        counts = Counts(words[2] >> 32, words[0], words[2] & 0xFFFFFFFF, words[1])
        needed = words[FIRST_COUNTER:]
        pops, pushes = tuple(needed[:CLASSES]), tuple(needed[CLASSES + 1 : -1])
        work = _Work(batch, needs, pops, pushes, needed[CLASSES], needed[-1], words[3], flags, holes)
        if counts.inserted or counts.deleted:
            work.rebuild = self._plan_rebuild(work, counts)
        return Plan(run, counts, outcome, work, self._state)

    def _join(self, keys: Array, status: Array) -> tuple[dict[str, Array], Array]:
        """The touched rows of sorted keys, and each key's position in its row, 2**32 - 1 where it is not there."""
        n, device, kernels, graph = len(keys), self.device, self._kernels["join"], self.view()
        chunks = -(-n // CHUNK)
        owner, first, position, held, heads = device.carve(
            (n, np.uint32), (n + 1, np.uint32), (n, np.uint32), (n, np.uint64), (chunks, np.int64)
        )
        touched, n_pieces = status[3:4], status[4:5]
        kernels.CountRows(chunks, keys=keys, n=n, counts=heads)
        device.xp.cumsum(heads, out=heads)
        kernels.ListRows(
            chunks, keys=keys, n=n, counts=heads, owner=owner, first=first, position=position, touched=touched
        )
        pieces = device.empty(self.pool.slots // HUB_EXTENT, np.uint64)  # a long row has more than HUB_EXTENT slots
        found = {"graph": graph, "keys": keys, "first": first, "position": position}
        kernels.Join(n, **found, touched=touched, held=held, pieces=pieces, n_pieces=n_pieces)
        kernels.JoinHubs(len(pieces), **found, pieces=pieces, n_pieces=n_pieces)
        return {"owner": owner, "first": first, "held": held, "touched": touched}, position

    def _plan_rebuild(self, work: _Work, counts: Counts) -> _Rebuild | None:
        """A new pool where the queues do not have what the batch needs, or would leave most of the pool unused."""
        queues, pool = self.queues, self.pool
        used = queues.fresh + _quanta(_missing(work.pops, queues.waiting)) + work.directories
        live = self.live + _quanta(work.pops) - _quanta(work.pushes)
        fits = used <= pool.quanta and max(map(sum, zip(queues.waiting, work.pushes, strict=True))) <= pool.ring
        if fits and (2 * live * (1 + self.reserve) >= pool.quanta or pool.quanta <= self._least_quanta()):
            return None
        return self._new_layout(work, self._choose_shift(counts, work.filled))

    def _least_quanta(self) -> int:
        return max(64, self.n_rows // 16)

    def _choose_shift(self, counts: Counts, filled: int) -> int:
        if self.block is not None:
            return self.block.bit_length() - 1
        if not self.fine and self.pool.quanta:
            return self.pool.shift
        edges, rows = self.num_edges + counts.inserted - counts.deleted, max(self.filled + filled, 1)
        return min(max((-(-edges // rows) - 1).bit_length(), 2), 7)

    def _new_layout(self, work: _Work, shift: int) -> _Rebuild:
        n, device, kernels = self.n_rows, self.device, self._kernels["prepare"]
        sentinels, grown = device.zeros(len(self.sentinels), np.uint64), device.zeros(len(self.sentinels), np.uint32)
        words, graph = device.zeros(n + 2, np.int64), self.view()  # each row's place, the end of all, what directories take
        places, total = words[:-1], words[-1:]
        kernels.CopySentinels(n, graph=graph, n=n, sentinels_out=sentinels, grown=grown)
        kernels.GrowRows(work.touched, graph=graph, batch=work.batch, sentinels_out=sentinels, grown=grown)
        out = Struct(**{**graph.values, "shift": shift})
        kernels.CountQuanta(n, graph=out, grown=grown, n=n, places=places, total=total)
        device.xp.cumsum(places, out=places)
        used, directories = device.to_host(words[-2:]).tolist()
        quanta = max(self._least_quanta(), used + int(used * self.reserve))
        if quanta >= 1 << 32:
            raise CapacityError(f"a pool of {quanta} quarters of blocks of {1 << shift} edges; 32-bit addresses allow {1 << 32}")
        kernels.PlaceRows(n, places=places, n=n, sentinels_out=sentinels)
        pool = _Pool(shift, quanta, max(64, quanta // 32))
        return _Rebuild(pool, {"sentinels": sentinels, **self._new_arrays(pool)}, places, grown, used, used - directories)

    # --- commit ---

    def commit(self, plan: Plan) -> Counts:
        work: _Work | None = self._use(plan) or None
        if work is None:  # an empty run
            return plan.counts
        counts, run, n, kernels = plan.counts, plan.run, len(plan.run), self._kernels["commit"]
        graph, batch = self.view(), work.batch
        if self.weighted and counts.updated:
            kernels.SetWeights(n, graph=graph, batch=batch, weight=run.weight, weights=self.weights)
        if not (counts.inserted or counts.deleted):
            return counts
        if counts.deleted:
            self._delete(n, graph, work)
        if work.rebuild:
            self._rebuild(graph, work.rebuild)
        else:
            queues, pool = self._take(work), self._pool_struct()
            kernels.Relayout(
                work.touched, graph=graph, batch=batch, pool=pool, queues=queues, counts=work.counts
            )
            self.live += _quanta(work.pops) - _quanta(work.pushes)
        self.filled += work.filled
        self.num_edges += counts.inserted - counts.deleted
        if counts.inserted:
            insert, items = (kernels.Insert, n) if self.split else (kernels.InsertByRow, work.touched)
            pool = self._pool_struct()
            insert(items, graph=self.view(), batch=batch, pool=pool, weight=run.weight, holes=work.holes)
        return counts

    def _delete(self, n: int, graph: View, work: _Work) -> None:
        kernels, batch, pool = self._kernels["commit"], work.batch, self._pool_struct()
        if not self.compact:
            kernels.Bury(n, graph=graph, batch=batch, pool=pool)
            return
        kernels.ListHoles(n, batch=batch, flags=work.flags, holes=work.holes)
        kernels.MoveTails(n, graph=graph, batch=batch, pool=pool, flags=work.flags, holes=work.holes)

    def _take(self, work: _Work) -> Struct:
        """The queues as the batch finds them; they are moved on."""
        old, length = self.queues, self.pool.ring
        missing = _missing(work.pops, old.waiting)
        fresh = [old.fresh + _quanta(missing[:c]) for c in range(CLASSES + 1)]
        taken = tuple(p - m for p, m in zip(work.pops, missing, strict=True))
        self.queues = _Queues(
            tuple((h + t) % length for h, t in zip(old.head, taken, strict=True)),
            tuple(w - t + p for w, t, p in zip(old.waiting, taken, work.pushes, strict=True)),
            fresh[-1] + work.directories,
        )
        by_class = {
            f"{name}{c}": values[c]
            for name, values in (("head", old.head), ("waiting", old.waiting), ("fresh", fresh))
            for c in range(CLASSES)
        }
        return Struct(rings=self.rings, length=length, **by_class, fresh_directories=fresh[-1])

    def _rebuild(self, graph: View, new: _Rebuild) -> None:
        arrays, shift = new.arrays, new.pool.shift
        self._kernels["rebuild"].Rebuild(
            -(-(new.used << (shift - 2)) // PIECE), graph=graph, places=new.places, grown=new.grown, rows=self.n_rows,
            shift_out=shift, slots_out=arrays["slots"], weights_out=arrays["weights"], children_out=arrays["children"],
        )  # fmt: skip
        self._use_pool(new.pool, arrays)
        self.sentinels, self.queues = arrays["sentinels"], _Queues(fresh=new.used)
        self.live = new.live
        if self.extents is not None:
            self.extents = new.grown

    def _pool_struct(self) -> Struct:
        return Struct(
            slots=self.slots, weights=self.weights, children=self.children, sentinels=self.sentinels,
            extents=self.extents,
        )  # fmt: skip

    # --- the rest of the contract ---

    def add_vertices(self, n: int, rows: int | None = None) -> None:
        n_rows, n_vertices = self._grown(n, rows)
        if n_rows > len(self.sentinels):
            sentinels = self._longer(self.sentinels, _power(n_rows))
            self.extents = None if self.extents is None else self._longer(self.extents, _power(n_rows))
            self.sentinels = sentinels
        self.n_rows, self.n_vertices, self._state = n_rows, n_vertices, object()

    def _longer(self, array: Array, n: int) -> Array:
        out = self.device.empty(n, array.dtype)
        out[: len(array)] = array
        out[len(array) :] = 0
        return out

    def _find(self, src: Array, dst: Array) -> Array:
        """Short rows are searched query by query; the queries of the others are sorted and joined with their rows."""
        n, device, kernels = len(src), self.device, self._kernels["join"]
        found, rest, status = device.empty(n, np.uint8), device.empty(n, np.uint32), device.zeros(5, np.int64)
        kernels.FindShort(n, graph=self.view(), src=src, dst=dst, n=n, found=found, rest=rest, n_rest=status)
        long = rest[: int(status[0])]
        if len(long):
            keys, places = sort_with_places(device, make_keys(device, src[long], dst[long]))
            _, position = self._join(keys, status)
            hits = device.empty(len(long), np.uint8)
            kernels.Answer(len(long), keys=keys, position=position, n=len(long), found=hits)
            found[long[places]] = hits
        return found.view(bool)

    def view(self) -> View:
        fields = {
            "sentinels": self.sentinels, "extents": self.extents, "slots": self.slots, "weights": self.weights,
            "children": self.children, "shift": self.pool.shift, "fine": int(self.fine),
        }  # fmt: skip
        return View("graphvine_view.cuh", "VineView", fields, self._defines)

    @property
    def nbytes(self) -> int:
        arrays = (self.sentinels, self.extents, self.slots, self.weights, self.children, self.rings)
        return sum(int(a.nbytes) for a in arrays if a is not None)

    def check_invariants(self) -> None:
        check_graphvine(self)


def _power(n: int) -> int:
    """The least power of two that is not below `n`."""
    return 1 << max(n - 1, 0).bit_length()


def _quanta(pieces: Any) -> int:
    """How many quanta so many pieces of each class are."""
    return sum(p << c for c, p in enumerate(pieces))


def _missing(pops: tuple[int, ...], waiting: tuple[int, ...]) -> tuple[int, ...]:
    """How many pieces of each class the rings do not have."""
    return tuple(max(p - w, 0) for p, w in zip(pops, waiting, strict=True))
