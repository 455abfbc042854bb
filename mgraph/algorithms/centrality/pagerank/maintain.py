"""Maintained PageRank: by forward push from changed edges, or by iterations from the last ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, Columns, EdgeDelta, Maintained, Renumbering, Shard
from mgraph.algorithms.centrality.pagerank.carry import Carry
from mgraph.algorithms.centrality.pagerank.forward_push import ForwardPush
from mgraph.algorithms.centrality.pagerank.program import run
from mgraph.algorithms.centrality.pagerank.teleport import whole
from mgraph.kernels.stopwatch import Stopwatch
from mgraph.structures.plan import UPDATED

__all__ = ["Ranks"]

CLOSER = 8  #: forward push begins from ranks whose error is this many times below the tolerance
FIRST_PUSH = 3  #: iterations that take as long as the first residuals of forward push
DEARER = 4  #: edges that iterations visit in the time of one edge of forward push: 4.2 to 4.5 on an H200, 4 on a CPU
FADE = 1 / 32  #: decrease of `again` per full computation
LONGER = 1.5  #: iterations of a read that prepares forward push, relative to a full computation


class Ranks(Maintained):
    """Ranks of the own vertices.

    `arguments` are those of `centrality.pagerank.program.run`.

    Attributes
    ----------
    forward_push : ForwardPush or None
        Computes the ranks while they go on from changed edges. None with weights or a decay, if jumps from vertices
        without edges and teleports have different distributions, and if the iteration did not converge.
    carry : Carry
        The state of the last iteration, without a `forward_push`. Empty with whole shares, and if ranks push.
    arcs : float
        The arcs of all ranks.
    found : dict
        The last result of the iteration, without a `forward_push`.
    fresh, again : float
        The iterations of a full computation, infinite for one with a given start; and those of the last one from
        earlier ranks, before the first a guess. While `again` forbids the next such iteration, it falls.
    many : int
        The changed arcs before that last one.
    needs, slow : int
        The edges that forward push visits at least, as it gave up last, 0 before; and the changed arcs then.
    """

    iterates = True

    def __init__(self, shard: Shard, start: Any = None, nstart: Any = None, **arguments: Any) -> None:
        start = start if nstart is None else nstart
        self.shard, self.arguments, self.n_vertices = shard, arguments, shard.n_vertices
        self.carry = Carry(shard)
        self.needs, self.slow, self.fresh, self.again, self.many, self.renumbered = 0, 0, math.inf, math.inf, 0, False
        self.arcs = self._sum(shard.out_edges.num_edges)
        self._iterate(start)
        if start is None:
            self.fresh = self.info["iterations"]
            self.again = self.fresh / 4

    def prepare(self) -> None:
        """Implement `Maintained.prepare`: prepare forward push."""
        if self._may_push:
            self._prepare_push()

    def _iterate(self, start: Any) -> None:
        """Iterate from `start`."""
        self.forward_push: ForwardPush | None = None
        self.found, self.info = run(self.shard, start=start, carry=self.carry, **self.arguments)

    @property
    def _may_push(self) -> bool:
        """True if forward push needs no weights, and equal distributions of teleports and dangling mass."""
        arguments, alike = self.arguments, ("personalization",) if self._teleports else ("personalization", "uniform")
        loose = arguments.get("loose") is not None or arguments.get("loose_dense") is not None
        other = arguments.get("weight") or arguments.get("decay") or arguments.get("several") or loose
        if other or arguments.get("dangling", alike[0]) not in alike:
            return False
        return bool(self.shard.n_vertices and self.info["converged"])

    @property
    def _teleports(self) -> bool:
        return self.arguments.get("dense") is not None or self.arguments.get("chosen") is not None

    def _prepare_push(self) -> None:
        """Start forward push, from closer ranks.

        Residuals must be far below their limit, or each push causes further ones.
        """
        arguments, base = self.arguments, None
        if self._teleports:
            base = whole(self.shard, arguments.get("dense"), arguments.get("chosen"), arguments.get("chosen_values"))
        self.carry.clear()
        closer, _ = run(self.shard, start=self.found["rank"], **{**arguments, "tol": arguments["tol"] / CLOSER})
        ranks = self.shard.device.astype(closer["rank"], np.float64)
        self.forward_push = ForwardPush(self.shard, arguments["alpha"], arguments["tol"], ranks, base)
        self.found = {}

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        nbytes = self.carry.nbytes + (0 if self.forward_push is None else self.forward_push.nbytes)
        return nbytes + sum(int(column.nbytes) for column in self.found.values())

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Implement `Maintained.apply_changes`."""
        # Return at once if no change matters to ranks.
        more, self.n_vertices = self.shard.n_vertices - self.n_vertices, self.shard.n_vertices
        all_matter = self.arguments.get("weight") or changes.old is None  # unweighted edges have no updates
        matter = len(changes) if all_matter else self.shard.device.total(changes.kinds != UPDATED)
        renumbered, self.renumbered = self.renumbered, False
        if not matter and not more and not renumbered and not self.arguments.get("decay"):  # times are not in `changes`
            return ApplyResult(0, False)

        self.arcs = self._sum(self.shard.out_edges.num_edges)
        if more:
            self._take_new_vertices()

        # Try forward push, unless it is known to give up.
        watch, visited, start = Stopwatch(self.shard.device, self.shard.size == 1), 0, self.found.get("rank")
        fits = self._fits(len(changes), most)
        if self.forward_push is not None:
            if fits:
                allowed = self._allowed(most)
                settled = self.forward_push.apply_changes(changes, allowed, renumbered)
                visited = int(self._sum(self.forward_push.edges))
                if settled and self.forward_push.error < self.arguments["tol"]:
                    self.info = {**self.info, "error": self.forward_push.error}
                    return ApplyResult(visited, True)
                self.needs, self.slow = max(self.forward_push.needs, allowed + 1), len(changes)
                fits = False
            start = self.forward_push.ranks("float64") if self.forward_push.positive else None  # all may be new
            self.shard.device.synchronize()
        pushed, tried = visited, watch.seconds()

        # Else iterate, unless ranks depend on their start.
        if start is None or not self.info["converged"]:
            return None
        if self.fresh <= self.again < math.inf and 2 * len(changes) >= self.many:
            # From the last ranks it took no less: many changed edges make small components, to which mass flows slowly.
            self.again *= 1 - FADE
            self.carry.clear()
            self._iterate(None)
            self.fresh = self.info["iterations"]
            return ApplyResult(0, True, "anew")
        self.carry.take(changes, self.arcs, self.arguments.get("dangling") == "drop")
        self._iterate(start)
        if not self.info["converged"]:
            return None
        self.again, self.many = max(self.info["iterations"], 1), len(changes)
        if self._may_push and self._fits(len(changes), most) and self._pays(len(changes), most):
            self._prepare_push()
        visited += int(self.info["iterations"] * self.arcs)
        if fits or not most:
            return ApplyResult(visited, True, "iterated")
        return ApplyResult(visited, True, "iterated after a try", watch.seconds() - tried, pushed)

    def _take_new_vertices(self) -> None:
        """Extend the distributions to vertices that were added: walks do not jump to these."""
        device, rows = self.shard.device, self.shard.hi - self.shard.lo
        for name in ("dense", "loose_dense"):
            if (numbers := self.arguments.get(name)) is not None and numbers.ndim == 1:
                extended = device.zeros(rows, np.float64)
                extended[: len(numbers)] = device.asarray(numbers, np.float64)
                self.arguments[name] = extended

    def _fits(self, changed: int, most: float) -> bool:
        """Return False if a push of `changed` arcs would give up. Much smaller batches need less."""
        needs = self.needs if 2 * changed >= self.slow else self.needs * changed / self.slow
        return needs <= self._allowed(most) if needs else most > 0

    def _pays(self, changed: int, most: int) -> bool:
        """Return True if pushes of such batches may be worth their preparation.

        The rows of the changed vertices must not be too many. A read that has iterated for long leaves it to a later
        one.
        """
        further = math.log(CLOSER) / -math.log(self.arguments["alpha"])  # iterations at most
        room = LONGER * self.fresh - self.info["iterations"] - FIRST_PUSH
        return further <= room and changed * self.arcs <= self._allowed(most) * self.shard.n_vertices

    def _allowed(self, most: float) -> int:
        """Return how many of `most` edges a push may visit: half of them, and less time than iterations take."""
        return int(min(most / 2, self.again * max(self.arcs, 1) / DEARER))

    def renumber(self, ids: Renumbering) -> bool:
        """Implement `Maintained.renumber`. Returns False with a teleport vector."""
        by_vertex = ("dense", "chosen", "loose", "loose_dense")
        if self.arguments.get("several") or any(self.arguments.get(name) is not None for name in by_vertex):
            return False
        self.n_vertices, self.renumbered = len(ids.kept), True
        self.found = {name: column[ids.rows] for name, column in self.found.items()}
        self.carry.renumber(ids)
        if self.forward_push is not None:
            self.forward_push.renumber(ids)
        return True

    def _sum(self, mine: float) -> float:
        return float(self.shard.exchange.allreduce(np.array([mine], np.float64))[0])

    def columns(self) -> Columns:
        """Return the ranks of the own vertices."""
        if self.forward_push is None:
            return {name: column.copy() for name, column in self.found.items()}, self.info
        return {"rank": self.forward_push.ranks(self.arguments["dtype"])}, self.info
