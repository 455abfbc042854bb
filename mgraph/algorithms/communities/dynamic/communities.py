"""Maintained communities: after a batch, vertices near its changes may move to better communities.

An update first adds the changed arcs to the strengths of vertices and to the weights inside communities. The ends of
these arcs are the first active vertices; vertices that move activate their neighbours, as in a fresh run. Communities
that lost an edge or a member are divided if they are no longer connected, and the vertices of the smaller parts may
move again.

Moves of single vertices merge no communities, and divide no connected ones. So from time to time the communities with
the largest share of changed arcs are improved on all levels (`region`). That takes time with the changes, not with the
graph.

The loss of quality depends on the graph, so it is measured: when a share of the arcs has changed, the communities are
computed anew, and the better result is kept. The next share is larger if little was lost, and smaller if much was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import (
    ApplyResult,
    Columns,
    EdgeDelta,
    Remembering,
    Renumbering,
    Shard,
    incoming,
    kernels,
)
from mgraph.algorithms.communities.dynamic.live_level import ALL, INSIDE, REFUSED, TOO_LARGE, LiveLevel
from mgraph.algorithms.communities.dynamic.names import Names
from mgraph.algorithms.communities.dynamic.region import improve_region
from mgraph.algorithms.communities.dynamic.splits import FILE, divide, divide_changed
from mgraph.algorithms.communities.multilevel import finest_level
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.device import Array, Device
from mgraph.distinct import distinct

__all__ = ["Communities"]

ROUNDS = 4  #: how often vertices move and communities are divided, per update
#: once the share RENEWAL of all arcs has changed, or ENOUGH arcs, communities are improved on all levels if the share
#: DIRTY of their own arcs has changed
RENEWAL, ENOUGH, DIRTY = 1 / 256, 1 << 20, 1 / 16
#: share of the arcs after whose changes communities are computed anew: at first FIRST, later from LEAST to MOST, such
#: that the loss is about LOSS; each time a fourth to twice the last share
FIRST, LEAST, MOST, LOSS = 1 / 32, 1 / 256, 1 / 2, 0.002
#: attributes that stay if a full computation is not better
KEPT = (
    "labels", "strengths", "inside", "objective", "unit", "quality", "levels", "changed", "recent", "updates", "level",
    "whole",
)  # fmt: skip
LEAST_BITS, MOST_BITS = 55, 62  #: bits of the sum of all weights in units; outside, the unit is chosen anew


class Communities(Remembering):
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
    level : LiveLevel or None
        The level of these; None after vertices came or left, or have other internal ids.
    whole : bool
        True if any vertex may have another label than at the last read; else those of ``level.moved``.
    inside : int
        The weight inside of communities, both ways.
    quality : float
        The quality as `Level.value` has it.
    changed : int64[n_vertices]
        The changed arcs at each vertex since its community was improved on all levels.
    recent, arcs : int
        The changed arcs since the last choice of such communities, and since the last full computation.
    share : float
        The share of the arcs after whose changes the next full computation follows.
    ahead : float
        By which part the quality was larger than that of the last full computation, if it was.
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
        self.program, self.descend, self.what, self.arguments = program, descend, what, arguments
        self.order, self.levels, self.share, self.ahead = shard.order, 0, FIRST, 0.0
        self.level: LiveLevel | None = None
        self.whole = True
        self.kernels = kernels(shard, FILE, shard.out_edges.view())
        if names.resumed and names.read == shard.epoch:
            self._begin(self._saved_labels())
        else:
            self._compute()

    def _compute(self) -> None:
        """Compute the communities anew."""
        columns, scalars = self.program(self.shard, **self.arguments)
        self.levels = scalars["levels"]
        self._begin(all_gather(self.shard, self.device.astype(columns["community"], np.uint32)))

    def _begin(self, labels: Array) -> None:
        """Keep the weights of `labels`, whose communities may be disconnected."""
        quality = self.arguments.get("quality", "modularity")
        level = finest_level(self.shard, self.what, quality, self.arguments["resolution"])
        self.objective, self.unit, self.strengths = level.objective, level.weights[0].unit, level.strengths
        level.start(labels)
        divide(level)
        self.labels, self.inside, self.level = level.labels, level.inside, None
        del level  # frees the copy of its rows
        self.changed, self.recent, self.arcs, self.updates = self.device.zeros(len(labels), np.int64), 0, 0, 0
        self.quality = self._present_level().value()

    def _present_level(self) -> LiveLevel:
        """Return the level with the present rows."""
        shard = self.shard
        if self.level is None or self.level.partition != shard.partition:
            self.level = LiveLevel(shard, self.labels, self.strengths, self.inside, self.objective, self.unit)
            self.whole = True
        else:
            self.level.follow()
        return self.level

    def _saved_labels(self) -> Array:
        """Return the labels at the last read, which came from a store with the same edges."""
        by_user = self.names.labels
        if self.order is None:
            return by_user.copy()
        labels = self.device.empty(len(by_user), np.uint32)
        self.device.scatter(labels, self.order, by_user)
        return labels

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        arrays, level = [self.labels, self.changed, *self.strengths], 0 if self.level is None else self.level.nbytes
        return sum(int(a.nbytes) for a in arrays) + level + self.names.nbytes

    # ---- following changes -------------------------------------------------------------------------------------------

    def apply_changes(self, changes: EdgeDelta, most: int) -> ApplyResult | None:
        """Apply changes to the communities; `most` is the number of arcs of the graph.

        None if they must be computed anew: after many changes, or if a weight is refused or too large for the unit.
        """
        if len(changes) > MOST * most:
            return None
        self.adopt_order()
        self.recent, self.arcs = self.recent + len(changes), self.arcs + len(changes)
        self.updates += 1

        # Apply the arcs to the weights of the communities.
        level, directed = self._present_level(), self.objective.directed
        self.kernels.ApplyArcs(
            len(changes), changes=changes.fields(), labels=self.labels, unit=self.unit, directed=int(directed),
            weighs=int(self.objective.name == "modularity"), strength=self.strengths[0],
            strength_in=self.strengths[-1] if directed else None, of_label=level.sums[0],
            of_label_in=level.sums[-1] if directed else None, changed=self.changed, active=level.marks,
            totals=level.totals,
        )  # fmt: skip
        totals = level.settle_changes(changes)
        inside, total, refused = (totals[place] for place in (INSIDE, ALL, REFUSED))
        self.objective = level.objective = replace(self.objective, total=self.objective.total + total)
        level.inside += inside
        if refused >= TOO_LARGE or not self._exact():
            return None

        # Move vertices, and from time to time communities.
        changed = self._improve(level, changes)
        if self.recent > min(RENEWAL * most, ENOUGH):
            changed |= self._renew(level)
        visited = int(self.shard.exchange.allreduce(np.array([level.visited]))[0])
        if self.arcs > self.share * most:
            self._try_anew(most)
            return ApplyResult(0, True, "anew")
        return ApplyResult(visited, changed)

    def _renew(self, level: LiveLevel) -> bool:
        """Improve the communities on all levels of whose arcs the largest shares have changed. True if any moved.

        O(n), and the time with the arcs of these communities: at most ``1 / DIRTY`` of each changed arc.
        """
        # Choose them.
        device, xp, n, first = self.device, self.device.xp, level.n, self.labels
        changed = level.sums_of(first, self.changed, n)
        degrees = device.astype(self.shard.out_edges.degrees(), np.int64)
        if self.objective.directed:
            degrees += incoming(self.shard, "communities").degrees()
        degrees = all_gather(self.shard, degrees)
        arcs = level.sums_of(first, degrees, n)
        at = xp.flatnonzero((changed > DIRTY * arcs) & (arcs > 0))
        budget, self.recent = self.recent * len(self.strengths) / DIRTY, 0
        if len(at) == 0:
            return False
        chosen_changed, chosen_arcs, labels = (Device.to_host(column) for column in (changed[at], arcs[at], at))
        order = np.argsort(-chosen_changed / chosen_arcs, kind="stable")
        fit = max(1, int(np.searchsorted(chosen_arcs[order].cumsum(), budget, "right")))
        chosen = device.zeros(n, np.uint8)
        chosen[device.asarray(labels[order[:fit]])] = 1
        self.changed[device.gather(chosen, first).astype(bool)] = 0

        # Improve them, and divide those that are not connected.
        descend = partial(self.descend, max_levels=self.arguments["max_levels"], seed=self._seed(ROUNDS))
        improve_region(level, chosen, descend)
        level.settle_all()
        if divide_changed(level):
            level.unmark()
        self.labels, self.inside, self.quality = level.labels, level.inside, level.value()
        return device.total(self.labels != first) > 0

    def _try_anew(self, most: int) -> None:
        """Compute the communities anew, keep the better ones, and choose when to do so again."""
        kept, mine, share = {name: vars(self)[name] for name in KEPT}, self._reached(), self.arcs / most
        self._compute()
        fresh = self._reached()
        if fresh <= mine:
            vars(self).update(kept)
        loss = 1 - mine / fresh if fresh > 0 else 0.0
        lost, self.ahead = loss + self.ahead, max(-loss, 0.0)
        factor = 2.0 if lost < LOSS / 2 else max(LOSS / lost, 1 / 4)
        self.share = min(max(share * factor, LEAST), MOST)

    def _reached(self) -> float:
        """Return the quality that users get."""
        return self.objective.quality(self.quality, len(self.labels))

    def _seed(self, number: int) -> int:
        return self.arguments["seed"] + (ROUNDS + 1) * self.updates + number

    def _exact(self) -> bool:
        """Return True if the unit of weights suits their sum, and there are some."""
        total = self.objective.total
        if self.unit == 0:
            return total > 0
        return 1 << LEAST_BITS <= total < 1 << MOST_BITS

    def _improve(self, level: LiveLevel, changes: EdgeDelta | None) -> bool:
        """Let vertices move, and divide communities, until none is divided. Returns True if the result has changed."""
        moves = len(level.moved)
        for number in range(ROUNDS):
            quality = level.improve_marked(self._seed(number))
            if not divide_changed(level, changes):
                break
            changes, quality = None, level.value()
        else:
            level.unmark()  # the next update does not know what was left
        changed = quality != self.quality or len(level.moved) > moves
        self.inside, self.quality = level.inside, quality
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
        self.changed = self.changed[ids.kept]
        self.strengths = [strength[ids.kept] for strength in self.strengths]
        self.order, self.level = self.shard.order, None
        return True

    def adopt_order(self) -> None:
        """Implement `Remembering.adopt_order`. Vertices that are new are communities of their own."""
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
        self.changed = indexed(self.changed, device.zeros(n - before, np.int64))
        more = device.full(n - before, lone, np.int64)
        self.strengths = [indexed(strength, more) for strength in self.strengths]
        self.order, self.level = order, None

    # ---- results -----------------------------------------------------------------------------------------------------

    def columns(self) -> Columns:
        """Return the label of each own vertex's community and the community's name, and pass the names on."""
        # Names go by users' ids. Without changed arcs, vertices may have come, or have other internal ids.
        self.adopt_order()
        shard, device, n = self.shard, self.device, self.shard.n_vertices
        if self.level is None or self.whole:
            by_user = self.labels.copy() if shard.order is None else device.gather(self.labels, shard.order)
            self.names.pass_on(device, by_user)
        else:
            vertices, labels = self._moved(self.level)
            self.names.pass_on(device, labels, vertices)
        if self.level is not None:
            self.whole = False
            self.level.moved.clear()

        # Labels go by users' names.
        own, rows = self.labels[shard.lo : shard.hi], shard.hi - shard.lo
        label, name = device.empty(rows, np.int64), device.empty(rows, np.int64)
        self.kernels.NameVertices(rows, labels=own, names=self.names.names, n=rows, label_of=label, name_of=name)
        if shard.by_name is not shard.order:
            least = device.full(n, 2**32 - 1, np.uint32)
            self.kernels.LeastNames(n, labels=self.labels, names=vertex_labels(shard), n=n, least=least)
            label = device.astype(device.gather(least, own), np.int64)
        scalars = {self.scalar: self._reached(), "communities": self.names.count, "levels": self.levels}
        return {"community": label, "name": name}, scalars

    def _moved(self, level: LiveLevel) -> tuple[np.ndarray, np.ndarray]:
        """Return users' ids of the vertices that have moved since the last read, and their labels. Two read-backs."""
        if not level.moved:
            return np.empty(0, np.int64), np.empty(0, np.uint32)
        moved = self.device.asarray(distinct(Device.to_host(self.device.concatenate(level.moved))))
        ids = moved if level.names is None else self.device.gather(level.names, moved)
        return Device.to_host(ids).astype(np.int64), Device.to_host(self.device.gather(self.labels, moved))
