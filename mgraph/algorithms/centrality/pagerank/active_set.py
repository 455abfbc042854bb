"""Active set of a personalised PageRank: vertices with mass, kept as a list while it is short, and visited alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels
from mgraph.algorithms.centrality.pagerank.iteration import SHARES, Pull, read_tally
from mgraph.algorithms.centrality.pagerank.teleport import Base
from mgraph.algorithms.primitives.transpose import CsrRows
from mgraph.device import Array, Device
from mgraph.kernels import Library
from mgraph.structures import Structure

__all__ = ["ActiveSet", "ActiveSetIteration"]

FILE = "algorithms/centrality/pagerank/active_set.cuh"
SHARE = 16  #: the set is long with more than 1 / SHARE of the vertices, or of the edges


class ActiveSet:
    """Vertices whose ranks can differ from 0, if all walks begin at few vertices.

    For a graph on one rank.

    Parameters
    ----------
    shard : Shard
    incoming : Structure
        The in-edges.
    teleport : float64[n_vertices]
        Where walks begin: 0 for all but few vertices.

    Attributes
    ----------
    rows : uint32[n_vertices // SHARE]
        The first `n` of them are the active vertices, while they are `few`.
    few : bool
        True if a visit of only these rows is faster than of all: they are few, with few edges and no hub.

    Notes
    -----
    4 bytes per `SHARE` vertices, and one bit per vertex.
    """

    def __init__(self, shard: Shard, incoming: Structure, teleport: Array) -> None:
        n, device = shard.n_vertices, shard.device
        self.most_edges, self.kernels = incoming.num_edges // SHARE, kernels(shard, FILE, shard.out_edges.view())
        self.rows, self.state = device.empty(n // SHARE, np.uint32), device.zeros(3, np.int64)
        reached = {"bits": device.zeros(n // 32 + 1, np.uint32), "rows": self.rows, "most": n // SHARE}
        self.given = {
            "out": shard.out_edges.view(),
            "back": incoming.view(),
            "reached": {**reached, "state": self.state},
        }
        self.n, self.few = 0, True
        self.kernels.Begin(n, teleport=teleport, n=n, **self.given)
        self._read()

    def grow(self) -> None:
        """Add the out-neighbours of the vertices that joined last.

        One launch, one read-back.
        """
        if self.few:
            new = self.n - self.first
            self.kernels.Reach(-(-new // LANES), first=self.first, n=new, **self.given)
            self._read()

    def _read(self) -> None:
        self.first = self.n  # the vertices that joined last begin here
        self.n, edges, hubs = Device.to_host(self.state).tolist()
        self.few = self.n <= len(self.rows) and edges <= self.most_edges and not hubs


class ActiveSetIteration(Pull):
    """Pull iteration on one rank that visits the active set only, and all rows once the set is long.

    Parameters
    ----------
    reached : ActiveSet
    rest : callable
        Makes the rows to visit once the active set is long.

    Attributes
    ----------
    handed : float64[n_vertices]
        The total share sent by each vertex to each of its out-neighbours.
    news : SHARES[bits][n_vertices]
        The last share sent, or its change; `handed` itself if shares are whole.
    """

    file = "algorithms/centrality/pagerank/pull.cuh"

    def __init__(
        self, shard: Shard, edges: Structure | CsrRows, bits: int, weight: bool, reached: ActiveSet,
        rest: Callable[[], Structure | CsrRows],
    ) -> None:  # fmt: skip
        self.reached: ActiveSet | None = reached
        self.rest = rest
        super().__init__(shard, edges, bits, weight)
        self.handed = self.device.empty(self.n, np.float64)

    def _list_hubs(self) -> tuple[Array, int, int]:
        return (self.device.empty(0, np.uint64), 0, 0) if self.reached else super()._list_hubs()

    def _library(self, bits: int) -> Library:
        return kernels(self.shard, self.file, self.view, SHARE_BITS=bits, BY_WEIGHT=self.weight)

    def begin(self, start: Array, scale: float, even: float, bits: int) -> None:
        """Compute degrees, first ranks and first shares."""
        assert self.reached
        super().begin(start, scale, even, bits)
        self.tally.reverse()  # so that `FirstShares` clears the tally that `StartRanks` wrote
        self.news = self.handed if bits == 64 else self.device.empty(self.n, SHARES[bits])
        self.kernels.FirstShares(
            self.n, n=self.n, ranks=self.sums, shares=self._shares(), tally=self.tally[0], spent=self.tally[1]
        )
        self.reached.grow()

    def _shares(self) -> dict[str, Array]:
        return {"degrees": self.degrees, "handed": self.handed, "news": self.news}

    def _read(self, step: int) -> tuple[float, float, float]:
        """Return the tally of iteration `step`: change, mass sent, mass cut off. One read-back."""
        change, handed, kept = read_tally(self.tally[step & 1])
        return change, handed, kept

    def iterate(self, base: Base, tol: float, max_iter: int) -> dict[str, Any]:
        """Implement `Iteration.iterate` by three launches and two read-backs per iteration."""
        self.device.fill(self.sums, 0)
        _, handed, kept = self._read(0)
        error, steps = math.inf, 0
        while steps < max_iter and not error < tol:
            steps += 1
            self._step(steps, base.at(handed), base.alpha)
            before = kept
            change, handed, kept = self._read(steps)
            error = change + before
        return {"iterations": steps, "error": error, "converged": error < tol}

    def _step(self, step: int, base: dict[str, Any], alpha: float) -> None:
        """Compute the ranks of iteration `step`: `base` plus `alpha` times the received shares."""
        # Visit all rows once the active set is long.
        if self.reached and not self.reached.few:
            self.reached = None
            self._visit(self.rest())

        # Sum the shares per row.
        rows, n = (self.reached.rows, self.reached.n) if self.reached else (None, self.n)
        self.kernels.PullHubs(
            self.n_tasks, graph=self.view, tasks=self.tasks, n=self.n_tasks, news=self.news, sums=self.hub_sums
        )
        self.kernels.PullRows(-(-n // LANES), graph=self.view, rows=rows, n=n, news=self.news, sums=self.sums)

        # Compute ranks and next shares.
        self.base, self.alpha = base, alpha
        self.kernels.FinishPull(
            n, rows=rows, n=n, sums=self.sums, hub_sums=self.hub_sums, hub_rows=self.hub_rows, base=base, alpha=alpha,
            shares=self._shares(), tally=self.tally[step & 1], spent=self.tally[1 - (step & 1)],
        )  # fmt: skip
        if self.reached:
            self.reached.grow()
