"""State of PageRank's power iteration on a rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Shard, kernels, task_room
from mgraph.algorithms.centrality.pagerank.decay import WeightedRows
from mgraph.algorithms.centrality.pagerank.teleport import NO_BASE, Base
from mgraph.algorithms.primitives.transpose import CsrRows
from mgraph.algorithms.primitives.weight_validation import check_sums
from mgraph.device import Array, Device
from mgraph.kernels import Library, constants
from mgraph.structures import Structure

__all__ = ["Iteration", "Pull", "common", "read_tally"]

SHARES = {16: np.uint16, 32: np.float32, 64: np.float64}  #: the dtype of sent shares, by their bits
RANKS = constants("algorithms/centrality/pagerank/ranks.cuh")
CELLS = RANKS["tally_cells"]  #: the words of a tally
LOW_BITS = RANKS["low_bits"]  #: the bits of its low words
TALLY_ONE = 1 << RANKS["tally_bits"] + LOW_BITS  #: the number 1 in its fixed point of two words


def read_tally(tally: Array) -> list[float]:
    """Return the three sums of a tally of this rank. One read-back."""
    words = Device.to_host(tally).view(np.int64).tolist()
    return [((high << LOW_BITS) + low) / TALLY_ONE for high, low in zip(words[::2], words[1::2], strict=True)]


class Iteration:
    """State of the power iteration on a rank; its subclasses pull or push.

    Attributes
    ----------
    sums : float64[hi - lo]
        The ranks are ``base + alpha * sums``. At first the sums are the first ranks; subclasses define them later.
    degrees : uint32[hi - lo], or float64[hi - lo] with weights
        Out-degrees, or the sums of the weights of out-edges.
    tally : list of two uint64[CELLS]
        Sums over the own vertices in fixed point, for even and odd iterations: the difference between the ranks and the
        mass sent before, the mass sent, and the mass cut off.
    """

    file = ""

    def __init__(self, shard: Shard, edges: Structure | CsrRows, bits: int, weight: bool = False) -> None:
        self.shard, self.device, self.n, self.bits = shard, shard.device, shard.hi - shard.lo, bits
        self.weight = int(weight)
        self.common = common(shard, self.weight)
        if isinstance(edges, WeightedRows):
            self.degrees = edges.out_weights
        else:
            self.degrees = self._out_weights() if weight else self.device.empty(self.n, np.uint32)
        self.sums, self.base, self.alpha = self.device.empty(self.n, np.float64), NO_BASE, 1.0
        cells = self.device.zeros(2 * CELLS, np.uint64)
        self.tally = [cells[:CELLS], cells[CELLS:]]
        self._visit(edges)

    def _visit(self, edges: Structure | CsrRows) -> None:
        """Set the rows to visit from now on."""
        self.edges, self.view = edges, edges.view()
        self.kernels = self._library(self.bits)
        self.tasks, self.n_tasks, self.hub_rows = self._list_hubs()

    def _library(self, bits: int) -> Library:
        return kernels(self.shard, self.file, self.view, BY_WEIGHT=self.weight)

    def _out_weights(self) -> Array:
        """Return the sums of the weights of each own vertex's out-edges.

        A launch, a read-back and an allreduce.
        """
        sums = self.device.empty(self.n, np.float64)
        self.common.OutWeights(self.n, graph=self.shard.out_edges.view(), n=self.n, sums=sums)
        check_sums(self.shard, sums)
        return sums

    def _list_hubs(self) -> tuple[Array, int, int]:
        room = task_room(self.edges)
        tasks, state = self.device.empty(room, np.uint64), self.device.zeros(2, np.int64)
        if room == 0:
            return tasks, 0, 0
        self.kernels.ListHubs(self.n, graph=self.view, n=self.n, tasks=tasks, state=state)
        n_tasks, hub_rows = Device.to_host(state).tolist()
        return tasks[:n_tasks], n_tasks, hub_rows

    def begin(self, start: Array, scale: float, even: float, bits: int) -> None:
        """Compute degrees and first ranks.

        `bits` are those of the first shares, by pull. One launch.
        """
        view = self.shard.out_edges.view()
        self.common.StartRanks(
            self.n, graph=view, n=self.n, start=start, given=0 if start is None else min(len(start), self.n),
            scale=scale, even=even, degrees=self.degrees, ranks=self.sums, tally=self.tally[0],
        )  # fmt: skip

    def iterate(self, base: Base, tol: float, max_iter: int) -> dict[str, Any]:
        """Iterate until the error is below `tol`, or `max_iter` times.

        Returns the scalars of the result.
        """
        raise NotImplementedError

    def result(self, dtype: str) -> Array:
        """Return the ranks: dtype[hi - lo]. One launch."""
        wide = dtype == "float64"
        ranks = self.sums if wide else self.device.empty(self.n, np.float32)
        self.common.GiveRanks(
            self.n, sums=self.sums, n=self.n, base=self.base, alpha=self.alpha,
            single_ranks=None if wide else ranks, double_ranks=ranks if wide else None,
        )  # fmt: skip
        return ranks


class Pull(Iteration):
    """Pull iteration: rows are destinations, with their in-edges.

    Attributes
    ----------
    sums : float64[hi - lo]
        From the first iteration on, the total of shares received by each vertex.
    hub_sums : uint64[hub_rows]
        The same of hubs, in fixed point.
    """

    def _visit(self, edges: Structure | CsrRows) -> None:
        super()._visit(edges)
        self.hub_sums = self.device.zeros(self.hub_rows, np.uint64)  # rows after the last hub have none
        if edges.sorted_rows and self.n_tasks:
            self._sort_tasks()

    def _sort_tasks(self) -> None:
        """Sort the tasks by their first sources, so that concurrent tiles read the same cache lines.

        Done once; takes 0.3 ms for 600k tasks.
        """
        ids = self.device.empty(self.n_tasks, np.uint32)
        self.kernels.FirstIds(self.n_tasks, graph=self.view, tasks=self.tasks, n=self.n_tasks, ids=ids)
        with self.device.taking(16 * self.n_tasks, f"the order of {self.n_tasks} tasks"):
            places = self.device.xp.argsort(ids, kind="stable")
        self.tasks = self.device.gather(self.tasks, places)


def common(shard: Shard, weight: int = 0) -> Library:
    """Return the kernels that pull and push share."""
    return kernels(shard, "algorithms/centrality/pagerank/ranks.cuh", shard.out_edges.view(), BY_WEIGHT=weight)
