"""PageRank that follows the graph: from changed edges outwards, or by iterations that begin with the last ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, Columns, EdgeDelta, Renumbering, Shard
from mgraph.algorithms.centrality.pagerank.forward_push import ForwardPush
from mgraph.algorithms.centrality.pagerank.program import run
from mgraph.algorithms.centrality.pagerank.teleport import whole
from mgraph.structures.plan import UPDATED

__all__ = ["Ranks"]

CLOSER = 8  #: going outwards begins from ranks with so much smaller an error than the tolerance

MOST_FUTILE = 5  #: going outwards is tried again after 2**MOST_FUTILE iterations at most


class Ranks:
    """The ranks of the own vertices; `arguments` are those of `centrality.pagerank.program.run`.

    Attributes
    ----------
    forward_push : ForwardPush or None
        What the ranks are computed from while they go on from changed edges. None where walks from vertices without
        edges go elsewhere than others that follow no edge, with weights, and where the iteration did not converge.
    found : dict
        The last result of the iteration, where `forward_push` is None.
    futile, rest : int
        How often in a row going outwards was given up; how often it is not tried from now on.
    """

    takes_deletions = True

    def __init__(self, shard: Shard, start: Any = None, nstart: Any = None, **arguments: Any) -> None:
        start = start if nstart is None else nstart
        self.shard, self.arguments, self.n_vertices = shard, arguments, shard.n_vertices
        self.futile = self.rest = 0
        self.renumbered = False
        self._iterate(start)

    def _iterate(self, start: Any) -> None:
        given = self.arguments
        self.forward_push = None
        self.found, self.info = run(self.shard, start=start, **given)
        teleports = given.get("dense") is not None or given.get("chosen") is not None
        alike = ("personalization",) if teleports else ("personalization", "uniform")
        loose = given.get("loose") is not None or given.get("loose_dense") is not None
        if given.get("weight") or given.get("several") or loose or given.get("dangling", alike[0]) not in alike:
            return
        self.rest -= 1
        if self.info["converged"] and self.shard.n_vertices and self.rest < 0:
            base = None
            if teleports:
                base = whole(self.shard, given.get("dense"), given.get("chosen"), given.get("chosen_values"))
            # residuals must be far below their limit, or what a change hands on makes all those around it hand on, too
            closer, _ = run(self.shard, start=self.found["rank"], **{**given, "tol": given["tol"] / CLOSER})
            ranks = self.shard.device.astype(closer["rank"], np.float64)
            self.forward_push = ForwardPush(self.shard, given["alpha"], given["tol"], ranks, base)
            self.found = {}

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        held = 0 if self.forward_push is None else self.forward_push.nbytes
        return held + sum(int(column.nbytes) for column in self.found.values())

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Bring the ranks up to date; see `mgraph.algorithms.algorithm.Maintained`."""
        more, self.n_vertices = self.shard.n_vertices - self.n_vertices, self.shard.n_vertices
        all_matter = self.arguments.get("weight") or changes.old is None  # without weights there are no updates
        matter = len(changes) if all_matter else int((changes.kinds != UPDATED).sum())
        renumbered, self.renumbered = self.renumbered, False
        if not matter and not more and not renumbered:
            return ApplyResult(0, False)
        visited, start = 0, self.found.get("rank")
        if self.forward_push is not None:
            settled = self.forward_push.apply_changes(changes, most, renumbered)
            visited = int(self._sum(self.forward_push.edges))
            if settled and self.forward_push.error < self.arguments["tol"]:
                self.futile, self.info = 0, {**self.info, "error": self.forward_push.error}
                return ApplyResult(visited, True)
            self.futile = min(self.futile + 1, MOST_FUTILE)
            self.rest = 2**self.futile
            start = self.forward_push.ranks("float64")
        dense = self.arguments.get("dense") is not None or self.arguments.get("loose_dense") is not None
        if start is None or not self.info["converged"] or (more and dense):
            return None  # several rows; ranks that hang on those they began with; no numbers for vertices that came
        self._iterate(start)
        if not self.info["converged"]:
            return None
        return ApplyResult(visited + int(self.info["iterations"] * self._sum(self.shard.out_edges.num_edges)), True)

    def renumber(self, ids: Renumbering) -> bool:
        """Take over new internal ids; see `mgraph.algorithms.algorithm.Maintained`. False with a teleport vector."""
        by_vertex = ("dense", "chosen", "loose", "loose_dense")
        if self.arguments.get("several") or any(self.arguments.get(name) is not None for name in by_vertex):
            return False
        self.n_vertices, self.renumbered = len(ids.kept), True
        self.found = {name: column[ids.rows] for name, column in self.found.items()}
        if self.forward_push is not None:
            self.forward_push.renumber(ids)
        return True

    def _sum(self, mine: float) -> float:
        return float(self.shard.exchange.allreduce(np.array([mine], np.float64))[0])

    def columns(self) -> Columns:
        """The ranks of the own vertices."""
        if self.forward_push is None:
            return {name: column.copy() for name, column in self.found.items()}, self.info
        return {"rank": self.forward_push.ranks(self.arguments["dtype"])}, self.info
