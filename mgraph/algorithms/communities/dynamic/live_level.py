"""The level of the graph's vertices, kept from update to update: a sweep takes time with the active vertices.

A sweep of `Level` passes over arrays of all vertices: to list the active ones, to keep the old labels, and to add up
the quality. Here active vertices are marked and listed, moved vertices are listed, and the quality's sum of products is
updated for changed labels. That sum is a whole number, so the order of updates does not matter. Only a pass over a byte
per vertex is left before each sweep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import EdgeDelta, Shard, incoming
from mgraph.algorithms.communities.dynamic.level_kernels import level_kernels
from mgraph.algorithms.communities.multilevel import Level
from mgraph.algorithms.communities.multilevel.level import FILE, MOST_TURNS, SWEEPS, TURNS, sweep_seed
from mgraph.algorithms.communities.multilevel.objective import Objective
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.algorithms.primitives.weight_sums import WeightSums
from mgraph.device import Array, Device
from mgraph.kernels import constants

__all__ = ["ALL", "FATES", "INSIDE", "REFUSED", "TOO_LARGE", "LiveLevel"]

_TOTALS = constants("algorithms/communities/dynamic/live.cuh", HUB_DEGREE=1024)
INSIDE, ALL, REFUSED, LOW, MIDDLE, HIGH = (
    _TOTALS[name] for name in ("inside_more", "all_more", "refused", "low_word", "middle_word", "high_word")
)
NOTED, APART, FATES, N_TOTALS = (_TOTALS[name] for name in ("n_noted", "n_apart", "fates", "n_totals"))
CHUNK, TOO_LARGE = _TOTALS["CountProducts::chunk"], _TOTALS["too_large"]


@dataclass(frozen=True)
class Scratch:
    """Memory of searches: `set`, `open`, `touched` and `renamed` are 0 before and after."""

    set: Array
    queue: Array
    parent: Array
    pending: Array
    open: Array
    touched: Array
    renamed: Array

    @classmethod
    def of(cls, device: Device, n: int, alone: bool) -> Scratch:
        """Make the memory for `n` vertices: 28 bytes per vertex, or 4 where no search is made, as on several ranks."""
        empty, zeros, searched = device.empty, device.zeros, n if alone else 0
        queue, parent, pending = (empty(searched, np.uint32) for _ in range(3))
        touched, renamed = (zeros(2 * n, np.uint8) for _ in range(2))
        return cls(zeros(searched, np.uint32), queue, parent, pending, zeros(2 * searched, np.uint32), touched, renamed)

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(int(array.nbytes) for array in vars(self).values())


class LiveLevel(Level):
    """The level of the graph's vertices.

    Parameters
    ----------
    shard : Shard
    labels : uint32[n]
        The community of each vertex, which is connected, and named by its least member. Sweeps and divisions change
        this array.
    strengths : list of int64[n]
        As those of a `Level`. The caller may change them, and says so by `settle_changes`.
    inside : int
    objective : Objective
    unit : float

    Attributes
    ----------
    marks : uint8[n]
        1 for vertices that are active in the next sweep.
    before : uint32[n]
        The labels when communities were last divided.
    products : int
        The sum over the communities of the product of both strengths.
    moved : list of uint32 arrays
        Vertices whose labels may have changed since the caller cleared it, with repeats.
    n_apart : int
        The number of vertices that the last division has marked.
    """

    def __init__(
        self, shard: Shard, labels: Array, strengths: list[Array], inside: int, objective: Objective, unit: float
    ) -> None:
        device, n = shard.device, shard.n_vertices
        names = vertex_labels(shard)
        sides, self.used_unit = _sides(shard, objective), unit
        super().__init__(shard, sides, shard.partition, names, strengths, 0, objective, unit)
        self.start(labels, inside)

        # Memory for marks, which are read 8 at a time, and for lists of moved vertices.
        words = device.zeros(-(-n // 8), np.uint64)
        self.mark_words, self.marks = words, words.view(np.uint8)[:n]
        self.before, self.turned, self.is_noted = labels.copy(), labels.copy(), device.zeros(n, np.uint8)
        self.listed, self.noted_list = device.empty(self.rows, np.uint32), device.empty(n, np.uint32)
        self.n_noted, self.n_apart, self.scratch = 0, 0, Scratch.of(device, n, shard.size == 1)
        self.totals, self.moved = device.zeros(N_TOTALS, np.int64), list[Array]()

        # Count the products.
        self.counted = [device.empty(2 * n, np.int64) for _ in self.sums]
        self.products = 0
        level_kernels(self).CountProducts(-(-2 * n // CHUNK), products=self._products(), n=2 * n)
        self.take_totals()

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        arrays = [self.mark_words, self.before, self.turned, self.is_noted, self.listed, self.noted_list, self.moves]
        arrays += [*self.sums, *self.counted, *([] if self.names is None else [self.names])]
        return sum(int(array.nbytes) for array in arrays) + self.scratch.nbytes

    def follow(self) -> None:
        """Take up the rows as they are now."""
        sides, factor = _sides(self.shard, self.objective), 2 if len(self.weights) == 1 else 1
        self.weights = [
            WeightSums(self.shard, side.view(), side, self.first, self.rows, factor, self.used_unit, FILE)
            for side in sides
        ]
        self.kernels = self.weights[0].kernels
        self.tally.views = [one.view for one in self.weights]
        self.visited = 0

    # ---- what has changed --------------------------------------------------------------------------------------------

    def _products(self) -> dict[str, Any]:
        """Return the fields of the kernels' `Products`."""
        fields = {"sums": self.sums[0], "counted": self.counted[0], "sums_in": None, "counted_in": None}
        if len(self.sums) > 1:
            fields |= {"sums_in": self.sums[1], "counted_in": self.counted[1]}
        return fields | {"totals": self.totals}

    def take_totals(self) -> list[int]:
        """Return and clear what kernels have added up, and take their part of it. One read-back."""
        totals: list[int] = Device.to_host(self.totals).tolist()
        self.device.fill(self.totals, 0)
        self.products += totals[LOW] + (totals[MIDDLE] << 32) + (totals[HIGH] << 64)
        self.n_noted, self.n_apart = self.n_noted + totals[NOTED], totals[APART]
        return totals

    def value(self, gained: int = 0) -> float:
        """Add the ranks' `gained` to the weight inside of communities, and return their quality. Collective."""
        self.inside += int(self.shard.exchange.allreduce(np.array([gained]))[0])
        return self.objective.value(self.inside, float(self.products))

    def settle_changes(self, changes: EdgeDelta) -> list[int]:
        """Count the products after the strengths of the ends of `changes` have changed. Returns the totals."""
        fields = {"changes": changes.fields(), "labels": self.labels, "products": self._products()}
        for closing in (0, 1):
            level_kernels(self).SettleLabels(2 * len(changes), **fields, closing=closing)
        return self.take_totals()

    def settle(self, pairs: Array) -> list[int]:
        """Count the products after moves, and note the moved vertices. Returns the totals.

        `pairs` have a vertex in the upper half, and its label before in the lower one: uint64[k].
        """
        noted = {"list": self.noted_list, "is": self.is_noted, "n": self.n_noted, "totals": self.totals}
        fields = {"pairs": pairs, "n": len(pairs), "labels": self.labels, "products": self._products()}
        for closing in (0, 1):
            level_kernels(self).SettleMoves(len(pairs), **fields, noted=noted, closing=closing)
        return self.take_totals()

    def settle_all(self) -> None:
        """Take up new `labels` and `sums`, as after `start`. O(n)."""
        moved = self.device.xp.flatnonzero(self.labels != self.before)
        self.settle(moved.astype(np.uint64) << np.uint64(32) | self.before[moved])

    def noted(self) -> Array:
        """Return the vertices that have moved since communities were last divided; some may have moved back."""
        return self.noted_list[: self.n_noted]

    def catch_up(self) -> None:
        """Forget what has moved, after communities were divided."""
        noted = self.noted()
        copies = {"before": self.before, "turned": self.turned, "noted": self.is_noted}
        level_kernels(self).Catch(len(noted), list=noted, n=len(noted), labels=self.labels, **copies)
        if self.n_noted:
            self.moved.append(noted.copy())
        self.n_noted = 0

    # ---- local moving ------------------------------------------------------------------------------------------------

    def improve_marked(self, seed: int) -> float:
        """Sweep from the marked vertices on, while a sweep gains. Returns the quality."""
        best, turns, active = self.value(), TURNS, self._take_marked()
        for number in range(SWEEPS):
            if self.shard.size == 1 and len(active) == 0:
                break
            inside, pairs = self.inside, self._sweep_listed(sweep_seed(seed, number), turns, active)
            if pairs is None:
                break

            # Undo a sweep without gain, and try again with more turns.
            now = self.value(self.settle(pairs)[INSIDE])
            if now <= best:
                self._undo(pairs, inside)
                turns *= 2
                if turns > MOST_TURNS:
                    break
                continue
            best, active = now, self._take_marked()
        return best

    def _take_marked(self) -> Array:
        """Return the own vertices that any rank has marked, and remove the marks. One read-back."""
        if self.shard.size > 1:
            self._marked(self.marks)
        count, words = self.device.zeros(1, np.int64), self.mark_words
        level_kernels(self).ListMarked(
            len(words), marks=words, n=len(words), first=self.first, rows=self.rows, list=self.listed, count=count
        )
        return self.listed[: int(Device.to_host(count)[0])]

    def _sweep_listed(self, seed: int, turns: int, rows: Array) -> Array:
        """Let each of `rows` choose once, in `turns` turns.

        Marks the active vertices of the next sweep. Returns the moved vertices of all ranks with their labels before,
        as `settle` takes them; None if there are none.
        """
        device, n = self.device, len(rows)
        was = device.gather(self.labels[self.first : self.first + self.rows], rows)
        follow = {"before": self.turned, "marks": self.marks, "reach": math.inf, "bounds": None, "changes": None}
        follow["inside"] = self.totals[INSIDE : INSIDE + 1]
        votes = self._votes(self.labels, self.sums, self.objective.price, turns, seed)
        moved = self._run_turns({**votes, "lone": self.n}, follow, None, rows)
        self.visited += self.tally.edges
        if moved == 0:
            return None

        # List the moves. On one rank their number is known.
        pairs, count, alone = device.empty(n, np.uint64), device.zeros(1, np.int64), self.shard.size == 1
        level_kernels(self).ListMoves(
            n, rows=rows, was=was, n=n, first=self.first, labels=self.labels, pairs=pairs, count=count
        )
        pairs = pairs[: moved if alone else int(Device.to_host(count)[0])]
        return pairs if alone else device.concatenate(self.shard.exchange.allgather(pairs))

    def _undo(self, pairs: Array, inside: int) -> None:
        """Undo a sweep, and remove its marks."""
        level_kernels(self).MoveBack(len(pairs), pairs=pairs, n=len(pairs), moving=self.moving(), turned=self.turned)
        self.settle(pairs)  # they have the labels of the sweep now
        self.unmark()
        self.inside = inside

    def unmark(self) -> None:
        """Remove all marks."""
        self.device.fill(self.mark_words, 0)


def _sides(shard: Shard, objective: Objective) -> list[Any]:
    """Return the rows of a level of the graph's vertices."""
    return [shard.out_edges, incoming(shard, "communities")] if objective.directed else [shard.out_edges]
