"""The Leiden method on p ranks: communities are divided into connected parts, which become vertices.

In each level of an iteration vertices move, each community is divided into connected parts (`multilevel.level`), and
the parts become the vertices of the next level, which begin in the communities of their vertices. An iteration ends
when each community is one vertex. The next one begins on the graph with the communities found so far. In the first
sweep for the constant Potts model vertices choose in more turns: dense cores form only if vertices see who came before.

In a large graph the first iteration ends its sweeps early, since the second one goes on where it stopped. If the second
still gained, the graph's own vertices move once more, which gains most of what a third iteration would, and communities
that this disconnected are divided. A small graph takes its time (`Effort`).

An iteration without refinement, as in Louvain's method, is faster, but joins more: later iterations do not divide again
what it joined, and find fewer of the communities by which a graph was drawn.

Each part is connected, and so is each community at the end: it is a part, or a component of a community.

References
----------
.. [1] V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing well-connected communities",
   Scientific Reports 9, 2019. The method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.communities.dynamic.splits import FILE, divide
from mgraph.algorithms.communities.multilevel import Hierarchy, Level, finest_level
from mgraph.algorithms.communities.multilevel import warm as warm_levels
from mgraph.algorithms.communities.multilevel.level import MOST_TURNS

__all__ = ["descend", "run", "warm"]

LEAST_ITERATIONS = 2  #: after them, another one follows only if the last gained enough


@dataclass(frozen=True)
class Effort:
    """How long a graph's communities are improved.

    Parameters
    ----------
    iterations : int
        The most iterations.
    gain : float
        The smallest gain, as a share of the quality, after which another one follows.
    tolerance, decay : float
        The smallest gain of a sweep of the first iteration, as a share of the quality; its factor from level to level.
    reach : float
        The reach of moves (`Level.improve`).
    """

    iterations: int
    gain: float
    tolerance: float
    decay: float
    reach: float


SMALL = 1 << 15  #: most vertices of a small graph
OF_SMALL = Effort(10, 1e-4, 1e-3, 0.1, math.inf)
OF_LARGE = Effort(2, 1e-3, 0.02, 0.3, 32.0)
SEEDS = 1 << 20  #: seeds per iteration, one for each level


def run(
    shard: Shard, resolution: float = 1.0, quality: str = "modularity", max_levels: int = 50, seed: int = 0
) -> Columns:
    """Return the community of each own vertex by the Leiden method.

    Parameters
    ----------
    shard : Shard
    resolution : float
    quality : "modularity" | "cpm"
    max_levels : int
        Upper bound of the graphs in which vertices move in an iteration, 1 or more.
    seed : int
        Decides which vertices choose at the same time.

    Returns
    -------
    columns : dict
        "community", int64[hi - lo] on the shard's device: the smallest user's id in the community.
    scalars : dict
        ``quality``; ``communities``; ``levels``, how often parts became vertices in the last iteration.

    Raises
    ------
    InvalidOption
        A weight is negative or not finite; on every rank.
    CapacityError
        Too little memory.

    Notes
    -----
    O(n + m) per sweep.
    """
    # Each iteration begins with the communities of the last.
    finest = finest_level(shard, "leiden", quality, resolution)
    effort, levels, gain, connected = _effort(finest), 0, 0.0, True
    for iteration in range(effort.iterations if finest.objective.total else 0):
        if iteration >= LEAST_ITERATIONS and gain < effort.gain * finest.value():
            break
        hierarchy, before = Hierarchy(finest), finest.value()
        descend(hierarchy, max_levels, seed + SEEDS * iteration, alone=iteration == 0)
        levels, connected = hierarchy.levels, hierarchy.level.inside == hierarchy.level.loops
        hierarchy.ascend()
        gain = finest.value() - before

    # While there is something to gain, let vertices move once more. Divide what is not connected any more.
    if finest.objective.total and gain >= effort.gain * finest.value():
        finest.improve(seed + SEEDS * effort.iterations, reach=effort.reach)
        connected = False
    if not connected:
        divide(finest)

    # Name the communities by their smallest user's ids.
    reached = finest.objective.quality(finest.value(), shard.n_vertices)
    own, communities = Hierarchy(finest).communities()
    return {"community": own}, {"quality": reached, "communities": communities, "levels": levels}


def warm(shard: Shard) -> None:
    """Compile the launches on this shard."""
    warm_levels(shard, FILE)


def descend(levels: Hierarchy, max_levels: int, seed: int, alone: bool = False) -> None:
    """Improve the communities level by level, until each is a vertex. After `max_levels` they may be disconnected.

    With `alone`, each vertex begins as a community of its own.
    """
    effort = _effort(levels.finest)
    for number in range(max_levels):
        level = levels.level
        tolerance = effort.tolerance * effort.decay**number if alone else 0.0
        crowding = alone and number == 0 and level.objective.name == "cpm"
        level.improve(seed + number, tolerance, first_turns=MOST_TURNS if crowding else 0, reach=effort.reach)
        whole = level.fixed is None and level.inside == level.loops
        if whole or not levels.coarsen(level.refine(seed + number, level.objective)):
            break


def _effort(finest: Level) -> Effort:
    return OF_SMALL if finest.n <= SMALL else OF_LARGE
