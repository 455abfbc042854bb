"""PageRank's power iteration as a program of all ranks, by pull (`power_iteration.cuh`, `mgraph.exchange.world`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Shard, kernels
from mgraph.algorithms.centrality.pagerank.iteration import Pull
from mgraph.algorithms.centrality.pagerank.teleport import Base
from mgraph.algorithms.primitives.transpose import CsrRows
from mgraph.device import Array
from mgraph.kernels import Library, View
from mgraph.structures import Structure

__all__ = ["PowerIteration", "power_iteration_kernels"]

STEPS = 256  #: steps of a run of the program, after which the host checks for an abort


def power_iteration_kernels(shard: Shard, view: View, first: int, bits: int, weight: bool) -> Library:
    """Return the program for first shares of `first` bits, and later ones of `bits` bits."""
    return kernels(
        shard, "algorithms/centrality/pagerank/power_iteration.cuh", view, SHARE_BITS=bits, FIRST_BITS=first,
        BY_WEIGHT=int(weight),
    )  # fmt: skip


class PowerIteration(Pull):
    """Pull iteration of all ranks together.

    Parameters
    ----------
    shard : Shard
    edges : Structure or CsrRows
        The in-edges.
    bits, first_bits : int
        The form of shares, and of the first shares.
    weight : bool

    Attributes
    ----------
    sent : float64[hi - lo] or None
        The total share sent by each vertex to each of its out-neighbours; None if shares are whole.
    """

    def __init__(self, shard: Shard, edges: Structure | CsrRows, bits: int, weight: bool, first_bits: int) -> None:
        self.first_bits = first_bits
        super().__init__(shard, edges, bits, weight)
        self.sent: Array = None if bits == 64 else self.device.empty(self.n, np.float64)

    def _library(self, bits: int) -> Library:
        return power_iteration_kernels(self.shard, self.view, self.first_bits, bits, bool(self.weight))

    def iterate(self, base: Base, tol: float, max_iter: int) -> dict[str, Any]:
        """Implement `Iteration.iterate` by one launch per `STEPS` iterations."""
        # The shares of all vertices in two arrays: of the last step, and of the next one.
        world = self.shard.exchange.world(self.device)
        nbytes = self.shard.n_vertices * max(self.first_bits, self.bits) // 8
        layout = world.layout(self.shard.partition, 0, even=nbytes, odd=nbytes)
        fields = {
            "graph": self.view, "tol": tol, "alpha": base.alpha, "alike": int(base.alike), **base.parts,
            "teleport": base.teleport, "dangling": base.dangling, "degrees": self.degrees, "sums": self.sums,
            "sent": self.sent, "tasks": self.tasks, "n_tasks": self.n_tasks, "hub_sums": self.hub_sums,
            "hub_rows": self.hub_rows, "even_offset": layout.offsets["even"], "odd_offset": layout.offsets["odd"],
        }  # fmt: skip
        items = 1 + (self.n + self.edges.num_edges) // 256

        # Run until the error is below the tolerance.
        steps, error, handed, kept = 0, math.inf, 0.0, 0.0
        while steps < max_iter and not error < tol:
            state = world.run(
                self.kernels, "PowerIteration", layout, items, steps=steps, handed=handed, kept=kept,
                most=min(max_iter, steps + STEPS), **fields,
            )  # fmt: skip
            steps = state["steps"]
            numbers = np.array([state[name] for name in ("error", "handed", "kept", "even", "chosen", "loose")])
            error, handed, kept, *parts = numbers.view(np.float64).tolist()
            self.base, self.alpha = base.fields(*parts), base.alpha
        return {"iterations": steps, "error": error, "converged": error < tol}
