"""State of PageRank's power iteration on a rank, by pull and by push, with supersteps of the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels, task_room
from mgraph.algorithms.centrality.pagerank.active_set import ActiveSet
from mgraph.algorithms.centrality.pagerank.teleport import NO_BASE, Base
from mgraph.algorithms.primitives.transpose import CsrRows
from mgraph.algorithms.primitives.weight_validation import check_weights
from mgraph.device import Array, Device
from mgraph.kernels import Library, constants
from mgraph.structures import Structure

__all__ = ["Iteration", "Pull", "PullSupersteps", "Push", "common"]

SHARES = {16: np.uint16, 32: np.float32, 64: np.float64}  #: the dtype of sent shares, by their bits
_RANKS = constants("algorithms/centrality/pagerank/ranks.cuh")
CELLS, LOW_BITS = _RANKS["tally_cells"], _RANKS["low_bits"]  #: the words of a tally; the bits of each low word
TALLY_ONE = 1 << _RANKS["tally_bits"] + LOW_BITS  # the number 1 in a tally's fixed point of two words


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
        bad = np.array([not bool(self.device.xp.isfinite(sums).all())], np.int64)
        if int(self.shard.exchange.allreduce(bad, "max")[0]):
            check_weights(self.shard, "PageRank by weights", finite=True)  # it names an infinite weight
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

    def read(self, step: int) -> tuple[float, float, float]:
        """Return the tally of iteration `step`, summed over all ranks: change, mass sent, mass cut off.

        One read-back, one allreduce of integers, so that the sums do not depend on the number of ranks.
        """
        words = self.shard.exchange.allreduce(Device.to_host(self.tally[step & 1]).view(np.int64)).tolist()
        change, handed, kept = (
            ((high << LOW_BITS) + low) / TALLY_ONE for high, low in zip(words[::2], words[1::2], strict=True)
        )
        return change, handed, kept

    def iterate(self, base: Base, tol: float, max_iter: int) -> dict[str, Any]:
        """Iterate until the error is below `tol`, or `max_iter` times.

        Returns the scalars of the result.
        """
        _, handed, kept = self.read(0)
        error, steps = math.inf, 0
        while steps < max_iter and not error < tol:
            steps += 1
            self.step(steps, base.at(handed), base.alpha)
            before = kept
            change, handed, kept = self.read(steps)
            error = change + before
        return {"iterations": steps, "error": error, "converged": error < tol}

    def step(self, step: int, base: dict[str, Any], alpha: float) -> None:
        """Compute the ranks of iteration `step`: `base` plus `alpha` times the received shares."""
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


class PullSupersteps(Pull):
    """Pull iteration by supersteps of the host.

    Attributes
    ----------
    handed : float64[hi - lo]
        The total share sent by each vertex to each of its out-neighbours.
    news : SHARES[bits][hi - lo]
        The last share sent, or its change; `handed` itself if shares are whole.
    reached : ActiveSet or None
        The rows to visit, while they are few: all others send and receive nothing. None if all are visited.
    rest : callable
        Makes the rows to visit once the active set is long.
    """

    file = "algorithms/centrality/pagerank/pull.cuh"

    def __init__(
        self, shard: Shard, edges: Structure | CsrRows, bits: int, weight: bool = False,
        reached: ActiveSet | None = None, rest: Callable[[], Structure | CsrRows] | None = None,
    ) -> None:  # fmt: skip
        self.reached, self.rest = reached, rest
        super().__init__(shard, edges, bits, weight)
        self.handed = self.device.empty(self.n, np.float64)

    def _list_hubs(self) -> tuple[Array, int, int]:
        return (self.device.empty(0, np.uint64), 0, 0) if self.reached else super()._list_hubs()

    def _library(self, bits: int) -> Library:
        return kernels(self.shard, self.file, self.view, SHARE_BITS=bits, BY_WEIGHT=self.weight)

    def begin(self, start: Array, scale: float, even: float, bits: int) -> None:
        """Compute degrees, first ranks and first shares."""
        super().begin(start, scale, even, bits)
        self.tally.reverse()  # so that `FirstShares` clears the tally that `StartRanks` wrote
        self._take(bits)
        self.gathering.FirstShares(
            self.n, n=self.n, ranks=self.sums, shares=self._shares(), tally=self.tally[0], spent=self.tally[1]
        )
        if self.reached:
            self.reached.grow()

    def _take(self, bits: int) -> None:
        """Allocate the arrays for shares of `bits` bits."""
        whole, everyone = bits == 64, self.shard.n_vertices if self.shard.size > 1 else 0
        self.news = self.handed if whole else self.device.empty(self.n, SHARES[bits])
        self.everyones = self.device.empty(everyone, SHARES[bits])
        self.gathering = self._library(bits)

    def _shares(self) -> dict[str, Array]:
        return {"degrees": self.degrees, "handed": self.handed, "news": self.news}

    def _gathered(self) -> Array:
        if self.shard.size == 1:
            return self.news
        for r, theirs in enumerate(self.shard.exchange.allgather(self.news)):
            first, end = self.shard.partition.range(r)
            self.everyones[first:end] = theirs
        return self.everyones

    def step(self, step: int, base: dict[str, Any], alpha: float) -> None:
        """Implement `Iteration.step` with one allgather."""
        # Visit all rows once the active set is long.
        if step == 1:
            self.device.fill(self.sums, 0)
        if self.reached and not self.reached.few:
            assert self.rest
            self.reached = None
            self._visit(self.rest())
            self.gathering = self.kernels

        # Gather the shares of all vertices, and sum them per row.
        rows, n = (self.reached.rows, self.reached.n) if self.reached else (None, self.n)
        news, sums = self._gathered(), self.sums
        self.gathering.PullHubs(
            self.n_tasks, graph=self.view, tasks=self.tasks, n=self.n_tasks, news=news, sums=self.hub_sums
        )
        self.gathering.PullRows(-(-n // LANES), graph=self.view, rows=rows, n=n, news=news, sums=sums)

        # Compute ranks and next shares.
        if self.gathering is not self.kernels:
            self._take(self.bits)
        self.base, self.alpha = base, alpha
        self.kernels.FinishPull(
            n, rows=rows, n=n, sums=sums, hub_sums=self.hub_sums, hub_rows=self.hub_rows, base=base, alpha=alpha,
            shares=self._shares(), tally=self.tally[step & 1], spent=self.tally[1 - (step & 1)],
        )  # fmt: skip
        if self.reached:
            self.reached.grow()


class Push(Iteration):
    """Push iteration: rows are sources, with their out-edges.

    Shares are whole, and `sums` are the ranks.

    Attributes
    ----------
    words : list of uint64[n_vertices]
        The sum of the shares pushed to every vertex, in fixed point: one word, or two if shares have 64 bits.
    """

    file = "algorithms/centrality/pagerank/push.cuh"

    def __init__(self, shard: Shard, edges: Structure | CsrRows, bits: int, weight: bool = False) -> None:
        super().__init__(shard, edges, bits, weight)
        self.words = [self.device.zeros(shard.n_vertices, np.uint64) for _ in range(2 if bits == 64 else 1)]

    def _pushed(self, first: int, end: int) -> dict[str, Array]:
        parts = [word[first:end] for word in self.words]
        return {"high": parts[0], "low": parts[1] if len(parts) > 1 else None}

    def _to_owners(self) -> None:
        shard = self.shard
        n, first, end = shard.n_vertices, shard.lo, shard.hi
        leaving = self.device.empty(n, np.float64)
        self.kernels.DrainSums(n - self.n, sums=self._pushed(0, n), n=n, first=first, end=end, out=leaving)
        ranges = [shard.partition.range(r) if r != shard.rank else (0, 0) for r in range(shard.size)]
        for r, part in enumerate(shard.exchange.alltoallv([leaving[first:end] for first, end in ranges])):
            if r != shard.rank:
                self.kernels.AddSums(self.n, part=part, n=self.n, sums=self._pushed(shard.lo, shard.hi))

    def step(self, step: int, base: dict[str, Any], alpha: float) -> None:
        """Implement `Iteration.step` with one alltoallv."""
        # Push the shares of all rows, hubs by tasks.
        arguments = {"graph": self.view, "degrees": self.degrees, "ranks": self.sums}
        arguments["sums"] = self._pushed(0, self.shard.n_vertices)
        self.kernels.PushHubs(self.n_tasks, tasks=self.tasks, n=self.n_tasks, **arguments)
        self.kernels.PushRanks(-(-self.n // LANES), n=self.n, **arguments)

        # Send sums to their owners, and compute ranks.
        if self.shard.size > 1:
            self._to_owners()
        self.kernels.FinishRanks(
            self.n, sums=self._pushed(self.shard.lo, self.shard.hi), n=self.n, degrees=self.degrees, base=base,
            alpha=alpha, ranks=self.sums, tally=self.tally[step & 1], spent=self.tally[1 - (step & 1)],
        )  # fmt: skip


def common(shard: Shard, weight: int = 0) -> Library:
    """Return the kernels that pull and push share."""
    return kernels(shard, "algorithms/centrality/pagerank/ranks.cuh", shard.out_edges.view(), BY_WEIGHT=weight)
