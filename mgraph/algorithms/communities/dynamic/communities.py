"""Communities that follow the graph: after a batch, vertices move that its changes may have given a better community.

Strengths of vertices and the weight inside of communities take the changed arcs. The ends of these are the first active
vertices; those that move activate their neighbours, as in a fresh run. Communities that lost an edge or a member are
divided if they are no longer connected, and the vertices of the smaller parts may move again.

Moves of vertices alone do not merge communities, and divide none that is connected. So after changes of a stated share
of the arcs, or if the quality falls, another iteration of the method begins with the present communities, on all
levels. It takes a fourth of the time of a full computation, which follows only after changes of a larger share.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import ApplyResult, Columns, EdgeDelta, Renumbering, Shard, incoming, kernels
from mgraph.algorithms.communities.dynamic.names import Names
from mgraph.algorithms.communities.dynamic.splits import FILE, Scratch, divide
from mgraph.algorithms.communities.multilevel import Hierarchy, Level, finest_level, vertex_level
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.device import Array, Device
from mgraph.kernels import Struct

__all__ = ["Communities"]

ROUNDS = 4  #: how often vertices move and communities are divided, per update
#: communities are improved on all levels after changes of SHARE of the arcs, or of LEAST_SHARE if the quality fell by
#: the fraction LOSS meanwhile; and computed anew after changes of ANEW of the arcs
SHARE, LEAST_SHARE, LOSS, ANEW = 1 / 32, 1 / 256, 0.001, 1 / 2
LEAST_BITS, MOST_BITS = 55, 62  #: of the sum of all weights in units; otherwise the unit is chosen anew


class Communities:
    """Maintained communities of a rank.

    Parameters
    ----------
    shard : Shard
    names : Names
        The names at the last read, which outlive this.
    program : callable
        ``program(shard, **arguments)`` computes the communities anew: the algorithm's `run`. It is not called if the
        names come from a store and were read at this epoch.
    descend : callable
        ``descend(levels, max_levels, seed)`` is an iteration of it, from the communities of a `Hierarchy` on.
    what, scalar : str
        The names of the algorithm, and of the quality among its results.
    **arguments
        Those of the program: ``resolution``, ``seed``, and, if it has one, ``quality``.

    Attributes
    ----------
    labels : uint32[n_vertices]
        The least user's id in the community of each vertex of the graph.
    order : uint32[n_vertices] or None
        The internal ids of users' ids by which `labels` and `strengths` are indexed.
    strengths : list of int64[n_vertices]
        As those of a `Level`.
    sums : list of int64[2 n_vertices] or None
        The strengths of each community, by its label; None after vertices came or left.
    inside : int
        The weight inside of communities, both ways.
    loops : int
        The weight of self-loops, both ways.
    quality, best : float
        The quality as `Level.value` has it, now and after the last iteration on all levels.
    arcs, all_arcs : int
        The changed arcs since then, and since the last full computation.
    updates : int
        The updates since then, from which seeds follow.
    """

    def __init__(
        self,
        shard: Shard,
        names: Names,
        program: Callable[..., Columns],
        descend: Callable[..., Any],
        what: str,
        scalar: str,
        **arguments: Any,
    ) -> None:
        self.shard, self.device, self.names, self.scalar = shard, shard.device, names, scalar
        self.seed, self.arcs, self.updates, self.all_arcs = arguments["seed"], 0, 0, 0
        self.descend, self.max_levels = descend, arguments["max_levels"]
        self.order, self.levels = shard.order, 0
        if names.resumed and names.read == shard.epoch:
            labels = self._saved_labels()
        else:
            columns, scalars = program(shard, **arguments)
            self.levels, labels = (
                scalars["levels"],
                all_gather(shard, self.device.astype(columns["community"], np.uint32)),
            )
        self.kernels = kernels(shard, FILE, shard.out_edges.view())

        # Keep the weights. The program's communities may be disconnected.
        quality = arguments.get("quality", "modularity")
        level = finest_level(shard, what, quality, arguments["resolution"])
        self.objective, self.unit, self.strengths = level.objective, level.weights[0].unit, level.strengths
        level.start(labels)
        parting = divide(level, self.kernels, None)
        if parting.apart is not None:
            level.start(parting.labels, level.inside)
        self.labels, self.inside = parting.labels, level.inside
        self.quality = self.best = level.value()
        self.sums: list[Array] | None = level.sums
        self.loops = level.loops
        self.scratch = Scratch.of(self.device, level.n) if level.tally.by_thread else None

    def _saved_labels(self) -> Array:
        """Return the labels at the last read, which came from a store with the same edges."""
        by_user = self.names.labels
        if self.order is None:
            return by_user.copy()
        labels = self.device.empty(len(by_user), np.uint32)
        self.device.scatter(labels, self.order, by_user)
        return labels

    iterates = False

    @property
    def takes_deletions(self) -> bool:
        """Support for deletions: always."""
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        arrays = [self.labels, *self.strengths, *(self.sums or [])]
        scratch = 0 if self.scratch is None else self.scratch.nbytes
        return sum(int(a.nbytes) for a in arrays) + scratch + self.names.nbytes

    # ---- following changes -------------------------------------------------------------------------------------------

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Apply changes to the communities; `most` is the number of arcs of the graph.

        None if they must be computed anew: after many changes, or if a weight is refused.
        """
        self._index()
        self.arcs += len(changes)
        self.all_arcs += len(changes)
        if self.all_arcs > ANEW * most:
            return None
        self.updates += 1

        # Begin with the communities of before, and apply the arcs to their weights.
        shard, device, n, directed = self.shard, self.device, self.shard.n_vertices, self.objective.directed
        sides = [shard.out_edges, incoming(shard, "communities")] if directed else [shard.out_edges]
        level = vertex_level(shard, sides, self.strengths, self.objective, self.unit)
        level.start(self.labels.copy(), self.inside, self.sums)
        active, cut, sums = device.zeros(n, np.uint8), device.zeros(n, np.uint8), device.zeros(4, np.int64)
        self.kernels.ApplyArcs(
            len(changes), changes=changes.fields(), labels=self.labels, unit=self.unit, directed=int(directed),
            weighs=int(self.objective.name == "modularity"), strength=self.strengths[0],
            strength_in=self.strengths[-1] if directed else None, of_label=level.sums[0],
            of_label_in=level.sums[-1] if directed else None, active=active, cut=cut, sums=sums,
        )  # fmt: skip
        inside, total, loops, refused = Device.to_host(sums).tolist()
        self.loops += loops
        self.objective = level.objective = replace(self.objective, total=self.objective.total + total)
        level.inside += inside
        if refused or not self._exact():
            return None

        # Move vertices, and from time to time communities.
        changed = self._improve(level, changes, active, cut)
        if self.arcs > SHARE * most or (self.quality < (1 - LOSS) * self.best and self.arcs > LEAST_SHARE * most):
            self._refresh(level)
            changed = True
        visited = int(self.shard.exchange.allreduce(np.array([level.visited]))[0])
        return ApplyResult(visited, changed)

    def _refresh(self, level: Level) -> None:
        """Improve the communities on all levels, from the present ones on. O(m)."""
        arcs = self.shard.out_edges.num_edges
        level.start(self.labels.copy(), self.inside, self.sums)
        level.loops = self.loops
        levels = Hierarchy(level)
        self.descend(levels, self.max_levels, self.seed + ROUNDS * self.updates + ROUNDS)
        levels.ascend()
        level.start(divide(level, self.kernels, None).labels, level.inside)
        level.visited += arcs
        self.labels, self.inside, self.sums = level.labels.copy(), level.inside, level.sums
        self.quality = self.best = level.value()
        self.arcs = 0

    def _exact(self) -> bool:
        """Return True if the unit of weights suits their sum, and there are some."""
        total = self.objective.total
        if self.unit == 0:
            return total > 0
        return 1 << LEAST_BITS <= total < 1 << MOST_BITS

    def _improve(self, level: Level, changes: EdgeDelta | None, active: Array, cut: Array) -> bool:
        """Let vertices move, and divide communities, until none is divided. Returns True if the result has changed."""
        shard, labels = self.shard, self.labels
        for number in range(ROUNDS):
            seed = self.seed + ROUNDS * self.updates + number
            quality = level.improve(seed, active=active[shard.lo : shard.hi])
            parting = divide(level, self.kernels, self.labels, cut, changes, self.scratch)
            if parting.labels is not self.labels:
                level.start(parting.labels.copy(), level.inside)
                self.labels = parting.labels
            if parting.apart is None:
                break
            active, cut, changes, quality = parting.apart, None, None, level.value()
        changed = quality != self.quality or self.labels is not labels
        self.inside, self.sums, self.quality = level.inside, level.sums, quality
        return changed

    def renumber(self, ids: Renumbering) -> bool:
        """Adopt new internal ids after the removal of vertices, each of which is a community of its own."""
        # Users' ids move up.
        device, xp, n = self.device, self.device.xp, len(self.labels)
        gone = ids.new < 0
        by_user = gone if self.order is None else device.gather(gone, self.order)
        up = device.arange(0, n, np.int64) - xp.cumsum(by_user)

        # Keep the vertices that stay.
        self.labels = up[self.labels[ids.kept]].astype(np.uint32)
        self.strengths = [strength[ids.kept] for strength in self.strengths]
        self.order = self.shard.order
        self._resize()
        return True

    def _index(self) -> None:
        """Index the vertices by the shard's order, new ones too. These are communities of their own."""
        device, n, before = self.device, self.shard.n_vertices, len(self.labels)
        order = self.shard.order
        if order is self.order and n == before:
            return
        own = device.arange(0, n, np.uint32)
        places = own if order is None else order
        lone = 1 if self.objective.name == "cpm" else 0

        def indexed(old: Array, new: Array) -> Array:
            by_user, values = old if self.order is None else device.gather(old, self.order), device.empty(n, old.dtype)
            device.scatter(values, places, device.concatenate([by_user, new]))
            return values

        self.labels = indexed(self.labels, own[before:])
        more = device.full(n - before, lone, np.int64)
        self.strengths = [indexed(strength, more) for strength in self.strengths]
        self.order = order
        if n > before:
            self._resize()

    def _resize(self) -> None:
        """Drop the sums, and take new memory for a search, for another number of vertices."""
        self.sums, self.scratch = None, None if self.scratch is None else Scratch.of(self.device, len(self.labels))

    # ---- results -----------------------------------------------------------------------------------------------------

    def columns(self) -> Columns:
        """Return the label of each own vertex's community and the community's name, and pass the names on."""
        # Names go by users' ids.
        shard, device, n = self.shard, self.device, self.shard.n_vertices
        by_user = self.labels if shard.order is None else device.gather(self.labels, shard.order)
        self.names.pass_on(device, by_user)
        own = self.labels[shard.lo : shard.hi]

        # Labels go by users' names.
        label = own
        if shard.by_name is not shard.order:
            groups = Struct(labels=self.labels, touched=None, parent=None, names=vertex_labels(shard), n=n)
            least = device.full(3 * n, 2**32 - 1, np.uint32)
            self.kernels.LeastMembers(n, groups=groups, n=n, least=least, whole=None)
            label = device.gather(least, own)
        reached = self.objective.quality(self.quality, n)
        scalars = {self.scalar: reached, "communities": self.names.count, "levels": self.levels}
        return {"community": device.astype(label, np.int64), "name": self.names.of(own)}, scalars
