"""lpma: gpma+'s sorted array of leaves, in levels: growth appends a level and moves no edge.

::

    level 0    [a] [b] [c]                 the leaves of the first batch
    level 1    [d] [e] [f]                 as many again
    level 2    [g] [h] [i] [j] [k] [l]     as many as levels 0 and 1
    in order   a g d h b i e j c k f l     place i was place i / 2 before level 2, or is one of its new leaves

A leaf's level and its number there, its address, never change. With h levels after level 0, place (2 y + 1) 2^(h - x)
is leaf y of level x > 0, and place y 2^h is leaf y of level 0. The paper (Zou, Zhang, Lin, Yu: An Efficient Data
Structure for Dynamic Graph on GPUs) starts with one leaf. Here level 0 has as many as the first batch needs, so that a
built graph lies in one piece.

Batches are gpma+'s (`structures/pma`), on places. If a batch leaves the whole array too full, a level is appended, and
the batch is located again; then it rewrites windows as usual. If that does not suffice, or if the array becomes too
empty, the whole array is rewritten, as one level.

The windows of a batch are chosen from its counts before anything is written. So no strategy moves an edge twice, as the
paper's bottom-up strategy did. "bottom-up" takes each changed leaf's smallest range within bounds. "top-down" takes the
widest ranges with a half out of bounds. "hybrid" goes top-down if the density before the batch is above ``pi``. The
paper tunes pi by timing; here it is an option, so that equal batches give equal arrays everywhere.

A new leaf is empty until a window with it is rewritten, or a key is located in it. Searches skip empty leaves to the
left. The directory of the leaves (counts, heads, sums of groups) is in reading order, and is rewritten when a level is
appended: 5 bytes per leaf. The memory of a large level is allocated and filled during the batches before it.

Invariants
----------
1. ``sum(counts) == num_edges == sum(degrees)``; every level after level 0 has as many leaves as all before it.
2. Slots past their leaf's count hold 2**32 - 1, which is no id; no count is above the bound of a leaf.
3. ``start[r]`` is the address of the first live item of row r, or of a later row, or of the first slot of an empty leaf
   before it with no live item between; 64 << 40 if no leaf follows. In reading order start never falls.
4. The live slots of ``[start[r], start[r + 1])`` are row r, strictly ascending, and ``degrees[r]`` of them.
5. ``groups[g]`` is the sum of the counts of places ``1024 g .. 1024 g + 1023``.
6. ``heads[i]`` is the first slot of the leaf at place i.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption
from mgraph.kernels import Struct, View, constants
from mgraph.structures.pma.frame import Frame
from mgraph.structures.pma.scratch import PmaScratch
from mgraph.structures.pma.structure import NOBODY, Pma

__all__ = ["Lpma"]

Array = Any

_VIEW = constants("structures/lpma/view.cuh")
END, SHIFT = _VIEW["array_end"], _VIEW["level_shift"]
STRATEGIES = ("bottom-up", "top-down", "hybrid")
LARGE = 1 << 22  #: slots of an array from which its next level is made ahead
LEAD = 8  #: number of further batches like the last one that may fill the array, when the level is begun
PARTS = 4  #: batches that share the filling of a level


class _Level:
    """Next level, made in steps of bounded work.

    Attributes
    ----------
    nbytes : int
        Of its arrays.
    frame : Frame
        The structure's arrays with the level; the directory is uninitialized.
    scratch : PmaScratch or None
        For a batch as large as the last one.
    """

    frame: Frame
    scratch: PmaScratch | None = None

    def __init__(self) -> None:
        self.nbytes, self._steps = 0, 0

    def step(self, s: Lpma, capacity: int = 0) -> bool:
        """Make the next part; False if all parts are done.

        `capacity` is that of the scratch, in operations; 0 for none. Raises `CapacityError` if memory runs out.
        """
        # Allocate the level, then the directory, then the scratch; then fill the level in parts.
        step, n = self._steps, s.leaves * s.leaf
        if step == 0:
            if 2 * s.leaves >= 1 << 32:
                raise CapacityError(f"{2 * s.leaves} leaves are needed; 32-bit leaf numbers allow {(1 << 32) - 1}")
            self._level = s.flat(s.leaves, blank=False)
            self.nbytes = sum(int(array.nbytes) for array in self._level.values() if array is not None)
        elif step == 1:
            directory = s.directory(2 * s.leaves)
            self.nbytes += sum(int(array.nbytes) for array in directory.values())
            self.frame = s.frame(s._arrays([*s.levels, self._level], directory), s.start, s._degrees)
        elif step == 2:
            self.scratch = s.new_scratch(capacity, self.frame) if capacity else None
        elif (part := step - 3) < PARTS:
            s.device.fill(self._level["slots"][n * part // PARTS : n * (part + 1) // PARTS], NOBODY)
        else:
            return False
        self._steps += 1
        return True


class Lpma(Pma):
    """Packed memory array in levels, which grows without moving an edge.

    Parameters
    ----------
    n_rows, n_vertices, device, weighted
        As in `Structure`.
    strategy : "bottom-up" | "top-down" | "hybrid"
        The way in which a batch chooses the windows to rewrite.
    pi : float
        The density, 0 to 1, above which "hybrid" goes top-down.
    leaf : int
        Slots per leaf, a power of two from 8 to 128.
    leaf_density, root_density : (float, float)
        Minimum and maximum density of a leaf and of the whole array; ranges between are interpolated. The root's second
        is at least twice its first, since a new level halves the density.
    fill : float
        Density of a new level 0, between the two bounds of the root.

    Notes
    -----
    As gpma+: a batch of b operations is located in O(b log m), and the windows around its keys are rewritten, by 2 to 4
    launches up to 131,072 operations (1,023 on a CPU), 7 to 9 above and with windows from the top down, up to 6 more
    for wide windows, and one read-back. A batch that appends a level is located twice: two read-backs, 5 bytes written
    per leaf, and no edge moved. Memory: 4 bytes per slot (8 with weights), 5 per leaf, 12 per row; for large arrays
    also the next level, some batches before it is needed. Neighbours are sorted.
    """

    name: ClassVar[str] = "lpma"
    _files: ClassVar[dict[str, str]] = {
        "prepare": "structures/lpma/prepare.cuh",
        "commit": "structures/pma/commit.cuh",
        "build": "structures/pma/build.cuh",
        "view": "structures/lpma/view.cuh",
    }
    levels: list[dict[str, Array]]

    def __init__(
        self,
        n_rows: int,
        n_vertices: int,
        device: Device,
        weighted: bool,
        *,
        strategy: str = "bottom-up",
        pi: float = 0.60,
        leaf: int = 32,
        leaf_density: tuple[float, float] = (0.08, 1.0),
        root_density: tuple[float, float] = (0.30, 0.775),
        fill: float = 0.60,
    ) -> None:
        if strategy not in STRATEGIES:
            raise InvalidOption(f"strategy {strategy!r} of lpma is none of {', '.join(map(repr, STRATEGIES))}")
        if not 0 <= pi <= 1:
            raise InvalidOption(f"pi of lpma is {pi}; it must be a density, 0 to 1")
        if 2 * root_density[0] > root_density[1]:
            raise InvalidOption(
                f"the root's bounds are {root_density[0]} and {root_density[1]}; the second must be twice the first or "
                "more, since a new level halves the density"
            )
        self.strategy, self.pi = strategy, pi
        super().__init__(
            n_rows, n_vertices, device, weighted,
            leaf=leaf, leaf_density=leaf_density, root_density=root_density, fill=fill,
        )  # fmt: skip

    def _end_of(self, leaves: int) -> int:
        return END

    def _spread(self, array: dict[str, Array]) -> dict[str, Any]:
        level = {name: array[name] for name in ("slots", "weights")}
        return self._arrays([level], {name: array[name] for name in ("counts", "groups", "heads")})

    def _arrays(self, levels: list[dict[str, Array]], directory: dict[str, Array]) -> dict[str, Any]:
        """Return the structure's arrays; `table` has the levels' addresses for kernels."""
        addresses = [0 if a is None else self.device.address(a) for level in levels for a in level.values()]
        return {"levels": levels, "table": self.device.asarray(np.array(addresses, np.uint64)), **directory}

    def _pack(self, arrays: dict[str, Any], start: Array, degrees: Array) -> tuple[Struct, Struct, View]:
        size = {"leaves": len(arrays["counts"]), "height": len(arrays["levels"]) - 1}
        table, columns = arrays["table"], {name: arrays[name] for name in ("counts", "groups", "heads")}
        return (
            Struct(levels=table, **size, **columns),
            Struct(at=start, **size),
            self._view_of(
                start=start, degrees=degrees, levels=table, heads=arrays["heads"], weighted=int(self.weighted), **size
            ),
        )

    def _cloned(self, arrays: dict[str, Any]) -> dict[str, Any]:
        levels = [super(Lpma, self)._cloned(level) for level in arrays["levels"]]
        directory = {name: arrays[name] for name in ("counts", "groups", "heads")}
        return self._arrays(levels, super()._cloned(directory))

    def _columns(self) -> list[Array]:
        arrays = [a for level in self.levels for a in level.values()]
        return [*arrays, self._frame.arrays["table"], self.counts, self.groups, self.heads]

    @property
    def _top_down(self) -> bool:  # type: ignore[override]
        dense = self.num_edges > self.pi * self.leaves * self.leaf
        return self.strategy == "top-down" or (self.strategy == "hybrid" and dense)

    def _take(self, frame: Frame) -> None:
        super()._take(frame)
        self._ahead: _Level | None = None  # the next level
        self._ahead_refused, self._most = False, self.root_bounds(self.leaves)[1]

    def _prepare_growth(self, n: int, operations: int, capacity: int) -> None:
        """Make a part of the next level, if some more batches like this one may fill the array of `n` items."""
        if 4 * n < 3 * self._most:
            self._ahead = None
            return
        if self._most - n > LEAD * operations or self.leaves * self.leaf < LARGE or self._ahead_refused:
            return
        self._ahead = self._ahead or _Level()
        try:
            self._ahead.step(self, capacity)
        except CapacityError:  # the batch that needs it tries again
            self._ahead, self._ahead_refused = None, True

    def _grown(self, n: int) -> tuple[Frame, PmaScratch | None] | None:
        """Return the arrays with a new level, if it suffices for `n`."""
        if not self._most < n <= self.root_bounds(2 * self.leaves)[1]:
            return None
        # Complete the level, and interleave its directory with the present one.
        level = self._ahead or _Level()
        while level.step(self):
            pass
        arrays, scratch = level.frame.arrays, level.scratch
        level.scratch = None  # belongs to the plan
        self._kernels["prepare"].Interleave(
            2 * self.leaves, leaves=self._frame.leaves, old_heads=self.heads,
            **{name: arrays[name] for name in ("counts", "groups", "heads")},
        )  # fmt: skip
        return level.frame, scratch

    @property
    def nbytes(self) -> int:
        """Bytes of device memory, including a level made ahead; without scratch."""
        return self._nbytes + (0 if self._ahead is None else self._ahead.nbytes)

    # --- in reading order, on the host ---

    def in_order(self) -> np.ndarray:
        """Return the slots in reading order, uint32[leaves * leaf] on the host. O(slots)."""
        host, ordered = self.device.to_host, np.empty((0, self.leaf), np.uint32)
        for level in self.levels:
            leaves = host(level["slots"]).reshape(-1, self.leaf)
            both = np.empty((len(ordered) + len(leaves), self.leaf), np.uint32)
            if len(ordered):
                both[::2], both[1::2] = ordered, leaves
            else:
                both[:] = leaves
            ordered = both
        return ordered.ravel()

    def places(self, addresses: np.ndarray) -> np.ndarray:
        """Translate addresses on the host to slots in reading order: int64[n]."""
        level, slot = addresses >> SHIFT, addresses & ((1 << SHIFT) - 1)
        leaf, up = slot // self.leaf, np.maximum(len(self.levels) - 1 - level, 0)
        leaf = np.where(level > 0, 2 * leaf + 1, leaf) << up
        return np.where(addresses == END, self.leaves, leaf) * self.leaf + slot % self.leaf

    def check_invariants(self) -> None:
        """Assert the module's invariants. O(n_rows + slots), on the host."""
        sizes = [len(level["slots"]) for level in self.levels]
        assert all(size == sum(sizes[:x]) for x, size in enumerate(sizes) if x), "1"
        assert sum(sizes) == self.leaves * self.leaf, "1"
        slots, start = self.in_order(), self.places(self.device.to_host(self.start))
        self._check_directory(slots)
        within = start[start < len(slots)]
        assert ((slots[within] != NOBODY) | (within % self.leaf == 0)).all(), "3"
        counts = self.device.to_host(self.counts)
        assert (counts[within[slots[within] == NOBODY] // self.leaf] == 0).all(), "3"
        assert start[-1] == len(slots), "3"
        self._check_rows(slots, start)
