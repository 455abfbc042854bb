"""A graph of a multilevel method: its vertices move between communities, and form the parts of communities.

Local moving: in a sweep each active vertex chooses once. Vertices choose in a few turns, by a hash of their names, and
those of a turn choose at the same time, so that few neighbours choose without knowing of each other. A vertex may be
active in the next sweep if a neighbour has moved to another community than its own: the more of them have moved, the
likelier (`reach`). A hub of which one neighbour in a thousand has moved would read its whole row, and nearly always
stay. A sweep that still gains nothing is undone; in a small graph, and for CPM, it is repeated in more turns, a few
times.

Refinement: each vertex begins as a part of its own. A vertex that is alone, and well connected to the rest of its
community, joins the part of the community with the largest gain, to which chance adds less than an edge's weight. So
parts of nearly equal gains are chosen at random, which finds other divisions in other iterations. A vertex joins no
part that another one leaves in the same turn. So each part is connected.

Every rank has the label and the strength of each vertex of the graph, and the rows of its own vertices. After each turn
the ranks share the moves. Equal gains are decided by vertices' names.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Shard
from mgraph.algorithms.communities.multilevel.objective import Objective
from mgraph.algorithms.primitives.label_counts import LabelCounts
from mgraph.algorithms.primitives.programs import inbox_room
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.algorithms.primitives.weight_sums import WeightSums
from mgraph.device import Array, Device
from mgraph.kernels import constants
from mgraph.partition import Partition

__all__ = ["FILE", "Level"]

FILE = "algorithms/communities/multilevel/multilevel.cuh"
CHUNK = constants("algorithms/communities/multilevel/local_moving.cuh")["SumProducts::chunk"]
TURNS, MANY_TURNS = 4, 16  #: turns per sweep, in which vertices choose; of more than FEW vertices, and in refinements
FEW, MOST_TURNS = 1 << 16, 64  #: up to FEW vertices, and for CPM, an undone sweep is repeated in up to MOST_TURNS turns
SWEEPS = 50  #: upper bound of sweeps per level; 3 to 20 are usual
NOISE = 0.3  #: in a refinement, the largest random part of a gain, as a share of the mean weight of an edge
SWEEP_GAIN = 1e-5  #: the smallest gain after which another sweep follows


class Level:
    """A graph, of vertices or of parts of communities, and the communities of its vertices.

    Parameters
    ----------
    shard : Shard
    sides : list
        The rows of own vertices, with `view` and `num_edges`: of all edges, or of out-edges and of in-edges.
    partition : Partition
    names : uint32[n] or None
        The name of each vertex, for naming communities and breaking ties; None for its id.
    strengths : list of int64[n]
        The strength of each vertex; of a directed graph, of its out-edges and of its in-edges.
    loops : int
        The weight of edges inside of the vertices: of self-loops, or of parts of earlier levels.
    objective : Objective
    unit : float
        The factor that makes weights whole numbers; 0 if each edge weighs 1.
    fixed : uint32[k], optional
        Vertices that stay in their communities, since their rows are not known; at most one in each community.

    Attributes
    ----------
    labels : uint32[n]
        The community of each vertex, less than 2 n. A vertex that leaves its community alone gets label n + its name.
    sums : list of int64[2 n]
        The strengths of each community, by its label.
    inside : int
        The weight of edges inside of communities, both ways.
    visited : int
        Edges of which `mgraph.algorithms.communities.dynamic` has counted the reads.
    least : float
        The smallest gain of a sweep after which another one follows.
    """

    def __init__(
        self, shard: Shard, sides: list[Any], partition: Partition, names: Array, strengths: list[Array], loops: int,
        objective: Objective, unit: float, fixed: Array = None,
    ) -> None:  # fmt: skip
        self.shard, self.device, self.partition, self.n = shard, shard.device, partition, partition.n_vertices
        self.first, end = partition.range(shard.rank)
        self.rows, self.names, self.strengths = end - self.first, names, strengths
        self.loops, self.objective, self.fixed = loops, objective, fixed
        factor = 1 if len(sides) > 1 else 2
        self.weights = [WeightSums(shard, s.view(), s, self.first, self.rows, factor, unit, FILE) for s in sides]
        self.kernels = self.weights[0].kernels
        self.tally = LabelCounts(self.device, self.kernels, [one.view for one in self.weights], self.rows)
        self.moves = self.device.empty(self.rows, np.uint64)
        self.visited, self.least = 0, SWEEP_GAIN

    def start(self, labels: Array = None, inside: int | None = None, sums: list[Array] | None = None) -> None:
        """Begin with the communities of `labels`, or with a community for each vertex.

        `inside` is the weight inside of the communities; on the level of the graph's vertices it may be left out.
        `sums` are their strengths, if these are known.
        """
        self.labels = self._own_labels() if labels is None else labels
        self.sums = self._sum() if sums is None else sums
        self.inside = self._weigh_inside() if inside is None else inside

    @property
    def is_patient(self) -> bool:
        """True if sweeps may have `MOST_TURNS` turns: in a small graph, and where many vertices crowd into hubs."""
        return self.objective.name == "cpm" or (self.n <= FEW and self.fixed is None)

    def _own_labels(self) -> Array:
        return self.device.arange(0, self.n, np.uint32) if self.names is None else self.names.copy()

    def _sum(self) -> list[Array]:
        return [self.sums_of(self.labels, strength, 2 * self.n) for strength in self.strengths]

    def sums_of(self, labels: Array, strength: Array, n: int) -> Array:
        """Return the strength of each label less than `n`: int64[n]."""
        sums = self.device.zeros(n, np.int64)
        self.kernels.SumByLabel(self.n, labels=labels, strength=strength, n=self.n, sums=sums)
        return sums

    def _weigh_inside(self) -> int:
        """Return the weight of the edges inside of communities of the graph's vertices, both ways."""
        own = [int(Device.to_host(one.weigh("inside", self.labels))[0]) for one in self.weights]
        return int(self.shard.exchange.allreduce(np.array([sum(own)]))[0])

    def value(self, gained: int = 0) -> float:
        """Add the ranks' `gained` to the weight inside of communities, and return their quality. Collective.

        Ranks decide by it. Rank 0 adds up the products for all, since other CPUs may round differently.
        """
        products = np.float64(0 if self.shard.rank else self._sum_products())
        gained, bits = self.shard.exchange.allreduce(np.array([gained, products.view(np.int64)]))
        self.inside += int(gained)
        return self.objective.value(self.inside, float(bits.view(np.float64)))

    def _sum_products(self) -> float:
        """Return the sum over the communities of the product of both strengths."""
        n = len(self.sums[0])
        parts = self.device.empty(-(-n // CHUNK), np.float64)
        self.kernels.SumProducts(len(parts), sums=self.sums[0], others=self.sums[-1], n=n, parts=parts)
        return float(parts.sum())

    # ---- local moving ------------------------------------------------------------------------------------------------

    def improve(self, seed: int, tolerance: float = 0.0, first_turns: int = 0, reach: float = math.inf) -> float:
        """Sweep until a sweep gains less than the share `tolerance` of the quality, or less than `least`.

        The first sweep has at least `first_turns` turns. A vertex chooses again with a probability of at most `reach`
        times the share of its strength that leads to moved vertices. Returns the quality.
        """
        # Sweep.
        best, turns = self.value(), MANY_TURNS if self.n > FEW else TURNS
        active = self._movable(self.device.full(self.rows, 1, np.uint8))
        for number in range(SWEEPS):
            before = self.labels.copy(), self.inside
            marks, now = self._sweep(
                sweep_seed(seed, number), turns if number else max(turns, first_turns), active, reach
            )
            if marks is None:
                break

            # Undo a sweep without gain. A small graph tries again with more turns.
            if now <= best:
                self.labels, self.inside = before
                self.sums = self._sum()
                turns *= 2
                if not self.is_patient or turns > MOST_TURNS:
                    break
                continue
            gain, best, active = now - best, now, marks
            if gain < max(tolerance * best, self.least):
                break
        return best

    def _sweep(self, seed: int, turns: int, active: Array, reach: float) -> tuple[Array, float]:
        """Let each active vertex choose once, in `turns` turns.

        Returns the active vertices of the next sweep, uint8[rows], and the quality; None and 0 if no vertex has moved.
        """
        marks, inside = self.device.zeros(self.n, np.uint8), self.device.zeros(1, np.int64)
        follow = {"before": self.labels.copy(), "marks": marks, "reach": reach, "inside": inside}
        follow |= {"bounds": None, "changes": None}
        votes = self._votes(self.labels, self.sums, self.objective.price, turns, seed)
        if self._run_turns({**votes, "lone": self.n}, follow, active) == 0:
            return None, 0.0
        now = self.value(int(Device.to_host(inside)[0]))
        return self._marked(marks), now

    def _votes(self, labels: Array, sums: list[Array], price: float, turns: int, seed: int) -> dict[str, Any]:
        """Return the fields of the kernels' `Votes`, for local moving."""
        strength_in, sums_in = (self.strengths[1], sums[1]) if len(self.strengths) > 1 else (None, None)
        votes = {"labels": labels, "first": self.first, "unit": self.weights[0].unit, "tabled": self.tally.tabled}
        votes |= {"strength": self.strengths[0], "sums": sums[0], "strength_in": strength_in, "sums_in": sums_in}
        votes |= {"price": price, "names": self.names, "classes": turns, "turn": 0, "seed": seed, "lone": 0}
        votes |= dict.fromkeys(("bounds", "bound_sums", "bound_sums_in", "cuts", "joined", "count"))
        return votes | {"noise": 0.0, "moves": self.moves}

    def moving(self) -> dict[str, Any]:
        """Return the fields of the kernels' `Labels` for the communities."""
        pairs = zip(("strength", "strength_in"), self.strengths, strict=False)
        sums = zip(("sums", "sums_in"), self.sums, strict=False)
        return {"of": self.labels, "strength_in": None, "sums_in": None, "joined": None, **dict(pairs), **dict(sums)}

    def _run_turns(self, votes: dict[str, Any], follow: dict[str, Any], active: Array, listed: Array = None) -> int:
        """Let each active vertex choose once, in turns, and apply the moves. Returns the number of moves of all ranks.

        Rows are active that are 1 in `active`, uint8[rows], or that are in `listed`. `votes` and `follow` are fields of
        the kernels' `Votes` and `Follow`. All turns are one program of all ranks.
        """
        # Deal the vertices to turns; each turn's wide rows are groups.
        device, tally, world = self.device, self.tally, self.shard.exchange.world(self.device)

        def count(chunks: int, deal: dict[str, Any]) -> None:
            self.kernels.CountTurns(chunks, **tally.sides(), deal=deal, votes=votes, active=active)

        tally.deal(votes["classes"], count, listed)
        marks = np.concatenate([tally.marks, np.cumsum([0, *tally.groups])])
        marks, group_marks = np.split(device.asarray(marks), 2)
        moving = {"of": votes["labels"]} | {
            name: votes[name] for name in ("strength", "strength_in", "sums", "sums_in", "joined")
        }
        follow = {**follow, "moves": self.moves, "labels": votes["labels"]}
        follow |= {name: votes[name] for name in ("first", "unit", "strength", "strength_in", "names", "seed")}

        # A message is a move, in a refinement with what it changes.
        room = inbox_room(self.shard, self.partition)
        layout = world.layout(self.partition, room, message=8 if votes["bounds"] is None else 16)

        # The lists of moved vertices of other ranks, and of the tasks of rows of high degree.
        others = device.empty(self.n if self.shard.size > 1 else 0, np.uint32)
        task_room = max(weights.room for weights in self.weights)
        tasks = device.empty(task_room * len(self.weights), np.uint64)
        arcs = sum(weights.num_edges for weights in self.weights)
        state = world.run(
            self.kernels, "Sweep", layout, 1 + (self.rows + arcs) // 256, votes=votes, moving=moving, follow=follow,
            before=follow["before"], cuts=votes["cuts"], list=tally.list, others=others, hub_tasks=tasks,
            marks=marks, group_marks=group_marks, task_room=task_room, **tally.fields(),
        )  # fmt: skip
        return state["moved"]

    def _marked(self, marks: Array) -> Array:
        """Return the own vertices that any rank has marked: uint8[rows]."""
        own = marks[self.first : self.first + self.rows]
        if self.shard.size > 1:
            ranges = [self.partition.range(rank) for rank in range(self.shard.size)]
            for part in self.shard.exchange.alltoallv([marks[first:end] for first, end in ranges]):
                own |= part
        return self._movable(own)

    def _movable(self, own: Array) -> Array:
        """Set fixed vertices to 0 in `own`, a value per row."""
        if self.fixed is not None:
            rows = self.fixed.astype(np.int64) - self.first
            own[rows[(rows >= 0) & (rows < self.rows)]] = 0
        return own

    # ---- refinement --------------------------------------------------------------------------------------------------

    def refine(self, seed: int, objective: Objective) -> Array:
        """Divide each community into connected parts. Returns the part of each vertex, a vertex's name: uint32[n]."""
        # Each vertex begins as a part of its own, and with the weight of its edges in its community.
        device, rows, price = self.device, self.rows, objective.price
        parts, joined = self._own_labels(), device.zeros(self.n, np.uint8)
        sums = [self.sums_of(parts, strength, self.n) for strength in self.strengths]
        own = device.zeros(rows, np.int64)
        for weights in self.weights:
            weights.weigh("within", self.labels, own, loops=0)
        cuts = all_gather(self.shard, own, partition=self.partition)
        if self.names is not None:
            by_vertex, cuts = cuts, device.empty(self.n, np.int64)
            device.scatter(cuts, self.names, by_vertex)

        # Vertices that are alone join parts of their communities, in turns.
        changes, active, inside = device.zeros(rows, np.int64), device.empty(rows, np.uint8), device.zeros(1, np.int64)
        follow = {"before": parts.copy(), "marks": None, "reach": 0.0, "inside": inside}
        follow |= {"bounds": self.labels, "changes": changes}
        votes = self._votes(parts, sums, price, MANY_TURNS, sweep_seed(seed, SWEEPS))
        votes |= {"bounds": self.labels, "bound_sums": self.sums[0], "cuts": cuts, "joined": joined}
        votes |= {"bound_sums_in": self.sums[1] if len(self.sums) > 1 else None, "noise": NOISE * objective.mean}
        self.kernels.Separate(rows, votes=votes, n=rows, active=active)
        self._run_turns(votes, follow, active)
        return parts


def sweep_seed(seed: int, number: int) -> int:
    """Return a seed for the turns of a sweep: uint64."""
    return (seed * 0x9E3779B97F4A7C15 + (number + 1) * 0xD1B54A32D192ED03) % 2**64
