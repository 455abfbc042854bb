"""PageRank's power iteration as programs of all ranks (`mgraph.exchange.world`), by pull and by push."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Shard, kernels
from mgraph.algorithms.centrality.pagerank.iteration import SHARES, Iteration, Pull
from mgraph.algorithms.centrality.pagerank.teleport import Base
from mgraph.algorithms.primitives.transpose import CsrRows
from mgraph.device import Array
from mgraph.exchange.regions import Layout
from mgraph.kernels import Library, Struct, View
from mgraph.structures import Structure

__all__ = ["PowerIteration", "PushIteration", "power_iteration_kernels"]

STEPS = 256  #: steps of a run of a program, after which the host checks for an abort


def power_iteration_kernels(shard: Shard, view: View, first: int, bits: int, weight: bool) -> Library:
    """Return the program by pull for first shares of `first` bits, and later ones of `bits` bits."""
    return kernels(
        shard, "algorithms/centrality/pagerank/power_iteration.cuh", view, SHARE_BITS=bits, FIRST_BITS=first,
        BY_WEIGHT=int(weight),
    )  # fmt: skip


class _Together(Iteration):
    """Iteration by a program of all ranks, which has the name of its class."""

    handed = 0.0  #: the mass that was sent before

    def _layout(self) -> tuple[Layout, dict[str, Any]]:
        """Return the layout of the program's region, and the fields that are its own."""
        raise NotImplementedError

    def _keep_base(self, base: Base, parts: list[float]) -> None:
        """Keep the base of the last step, if ranks are computed from `sums` and the base."""

    def iterate(self, base: Base, tol: float, max_iter: int) -> dict[str, Any]:
        """Implement `Iteration.iterate` by one launch per `STEPS` iterations."""
        # What all steps have in common.
        world, (layout, fields) = self.shard.exchange.world(self.device), self._layout()
        fields |= {"graph": self.view, "tol": tol, "rule": Struct(**base.rule()), "degrees": self.degrees}
        fields |= {"tasks": self.tasks, "n_tasks": self.n_tasks}
        self.layout = layout
        items = 1 + (self.n + self.edges.num_edges) // 256

        # Run until the error is below the tolerance.
        steps, error, handed, kept = 0, math.inf, self.handed, 0.0
        while steps < max_iter and not error < tol:
            state = world.run(
                self.kernels, type(self).__name__, layout, items, steps=steps, handed=handed, kept=kept,
                most=min(max_iter, steps + STEPS), **fields,
            )  # fmt: skip
            steps = state["steps"]
            numbers = np.array([state[name] for name in ("error", "handed", "kept", "even", "chosen", "loose")])
            error, handed, kept, *parts = numbers.view(np.float64).tolist()
            self._keep_base(base, parts)
        return {"iterations": steps, "error": error, "converged": error < tol}


class PowerIteration(_Together, Pull):
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
        self.carried, self.scale = 0, 1.0

    def go_on(self, sums: Array, sent: Array, degrees: Array, handed: float, scale: float) -> None:
        """Begin with shares received and sent along each edge, times `scale`, and with the mass sent then."""
        self.sums, self.sent, self.degrees = sums, sent, degrees
        self.carried, self.handed, self.scale = 1, handed, scale

    def last_shares(self, steps: int) -> Array:
        """Return the own shares of the last step, which no vertex has received, after so many `steps`."""
        name = "odd" if steps & 1 else "even"
        shares = self.shard.exchange.world(self.device).array(
            self.layout, name, self.shard.n_vertices, SHARES[self.bits]
        )
        return shares[self.shard.lo : self.shard.hi]

    def _library(self, bits: int) -> Library:
        return power_iteration_kernels(self.shard, self.view, self.first_bits, bits, bool(self.weight))

    def _keep_base(self, base: Base, parts: list[float]) -> None:
        self.base, self.alpha = base.fields(*parts), base.alpha

    def _layout(self) -> tuple[Layout, dict[str, Any]]:
        # The shares of all vertices in two arrays: of the last step, and of the next one.
        nbytes = self.shard.n_vertices * max(self.first_bits, self.bits) // 8
        layout = self.shard.exchange.world(self.device).layout(self.shard.partition, 0, even=nbytes, odd=nbytes)
        return layout, {
            "carried": self.carried, "scale": self.scale,
            "sums": self.sums, "sent": self.sent, "hub_sums": self.hub_sums, "hub_rows": self.hub_rows,
            "even_offset": layout.offsets["even"], "odd_offset": layout.offsets["odd"],
        }  # fmt: skip


class PushIteration(_Together):
    """Push iteration of all ranks together: rows are sources, with their out-edges.

    Shares are whole, and `sums` are the ranks.
    """

    file = "algorithms/centrality/pagerank/push_iteration.cuh"

    def _layout(self) -> tuple[Layout, dict[str, Any]]:
        # An inbox has a sum for each vertex of its owner. Sums are in fixed point: one word, or two if shares have 64
        # bits.
        shard, n = self.shard, self.shard.n_vertices
        room = shard.partition.widest if shard.size > 1 else 0
        layout = shard.exchange.world(self.device).layout(shard.partition, room, message=8)
        high, low = self.device.zeros(n, np.uint64), self.device.zeros(n, np.uint64) if self.bits == 64 else None
        return layout, {"ranks": self.sums, "pushed": {"high": high, "low": low}}
