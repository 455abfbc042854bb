"""The Leiden method on p ranks: communities are divided into connected parts, which become vertices.

In each level of an iteration vertices move, each community is divided into connected parts (`multilevel.level`), and
the parts become the vertices of the next level, which begin in the communities of their vertices. An iteration ends
when each community is one vertex. The next one begins on the graph with the communities found so far. In the first
sweep for the constant Potts model vertices choose in more turns: dense cores form only if vertices see who came before.

The first iteration ends its sweeps early in graphs that are not small. Its first levels have a higher resolution there,
if edges between vertices of usual strength weigh much more than expected (`_raised`). Otherwise large communities that
are only half formed join into one, and its parts are too mixed for the later levels to divide it. After the last
iteration vertices move once more on each level, from the coarsest to the graph itself: parts of communities first, then
the vertices in them. This gains most of what another iteration would, and communities that it disconnected are divided.
Where a few parts are left that are not their community alone, they join it at once: each further level would only join
a few of them. Graphs have ten, two or one iterations, by their size (`Effort`).

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
from dataclasses import dataclass, replace

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.communities.dynamic.splits import FILE, divide
from mgraph.algorithms.communities.multilevel import Hierarchy, Level, finest_level
from mgraph.algorithms.communities.multilevel import warm as warm_levels
from mgraph.algorithms.communities.multilevel.level import MOST_TURNS
from mgraph.algorithms.communities.multilevel.objective import Objective

__all__ = ["descend", "run", "warm"]

LEAST_ITERATIONS = 2  #: a further iteration follows only if the last one gained enough


@dataclass(frozen=True)
class Effort:
    """How long a graph's communities are improved.

    Parameters
    ----------
    iterations : int
        The most iterations.
    gain : float
        The smallest gain, as a share of the quality, after which another one follows.
    tolerance, later : float
        The smallest gain of a sweep on the first level, as a share of the quality: of the first iteration, and of later
        ones.
    decay : float
        The factor of these from level to level.
    reach : float
        The reach of moves (`Level.improve`).
    """

    iterations: int
    gain: float
    tolerance: float
    later: float
    decay: float
    reach: float


SMALL, MEDIUM = 1 << 15, 1 << 20  #: most vertices of small and of medium graphs
OF_SMALL = Effort(10, 1e-4, 1e-3, 0.0, 0.1, math.inf)
OF_MEDIUM = Effort(2, 0.0, 0.1, 0.0, 0.3, 32.0)
OF_LARGE = Effort(1, 0.0, 0.1, 0.1, 0.3, 32.0)
LAST_TOLERANCE = 1e-4  #: smallest gain of a sweep of the last moves, as a share of the quality
PER_PART = SMALL  #: vertices of the graph for each part that may be joined to its community at once
SEEDS = 1 << 20  #: seeds per iteration, one for each level
RAISED, RAISED_LEVELS = 8.0, 3  #: factor of the resolution on the first levels of the first iteration; their number
USUAL = 1 / 4  #: largest expected weight of an edge for a raised resolution, as a share of the mean weight


def run(
    shard: Shard, resolution: float = 1.0, quality: str = "modularity", max_levels: int = 50, seed: int = 0,
    least_iterations: int = 1,
) -> Columns:  # fmt: skip
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
    least_iterations : int
        How many iterations large graphs have at least.

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
    iterations = max(effort.iterations, least_iterations)
    for iteration in range(iterations if finest.objective.total else 0):
        if iteration >= LEAST_ITERATIONS and gain < effort.gain * finest.value():
            break
        hierarchy, before = Hierarchy(finest), finest.value()
        first = iteration == 0
        tolerance = effort.tolerance if first else effort.later
        descend(hierarchy, max_levels, seed + SEEDS * iteration, first, finest.n // PER_PART, tolerance)
        levels, connected = hierarchy.levels, hierarchy.is_whole()
        if iteration + 1 == iterations:
            # Let vertices move once more on each level.
            for number, level in enumerate(hierarchy.climb()):
                level.improve(seed + SEEDS * iterations + number, LAST_TOLERANCE, reach=effort.reach)
                connected = False
        else:
            hierarchy.ascend()
        gain = finest.value() - before

    # Divide what is not connected any more.
    if not connected:
        divide(finest)

    # Name the communities by their smallest user's ids.
    reached = finest.objective.quality(finest.value(), shard.n_vertices)
    own, communities = Hierarchy(finest).communities()
    return {"community": own}, {"quality": reached, "communities": communities, "levels": levels}


def warm(shard: Shard) -> None:
    """Compile the launches on this shard."""
    warm_levels(shard, FILE)


def descend(
    levels: Hierarchy, max_levels: int, seed: int, alone: bool = False, few: int = 0, tolerance: float = 0.0
) -> None:
    """Improve the communities level by level, until each is a vertex. After `max_levels` they may be disconnected.

    With `alone`, each vertex begins as a community of its own. Parts are not kept if there are fewer than `few` more
    than communities, which may then be disconnected, too. Sweeps on the first level end at a gain of `tolerance`.
    """
    effort, objective = _effort(levels.finest), levels.level.objective
    raised = _raised(levels.finest) if alone else objective
    for number in range(max_levels):
        # Let vertices move, on the first levels at the raised resolution, but never on the last one.
        level = levels.level
        level.objective = raised if number < min(RAISED_LEVELS, max_levels - 1) else objective
        crowding = alone and number == 0 and level.objective.name == "cpm"
        least, turns = tolerance * effort.decay**number, MOST_TURNS if crowding else 0
        level.improve(seed + number, least, first_turns=turns, reach=effort.reach)
        whole = level.fixed is None and level.inside == level.loops
        parts = None if whole else level.refine(seed + number, level.objective)

        # Go on with the parts. If nothing joins at the raised resolution, go on without it.
        level.objective, was = objective, level.objective
        if parts is None or not levels.coarsen(parts, few):
            if was == objective:
                break
            raised = objective


def _raised(finest: Level) -> Objective:
    """Return the objective of the first levels, at which a community must be denser by the factor `RAISED`.

    It is that of `finest` for small graphs, for the constant Potts model, whose users choose a density, and for graphs
    with many edges between hubs: there even single edges would be too light. Collective.
    """
    # A usual vertex, at the end of a random edge, has the share `ends` of all ends.
    objective = finest.objective
    if finest.n <= SMALL or objective.name == "cpm":
        return objective
    finest.objective = replace(objective, resolution=1.0)
    ends = finest.inside / objective.total - finest.value()
    finest.objective = objective

    # Compare the weight that is expected between two of them with that of an edge.
    raised = replace(objective, resolution=RAISED * objective.resolution)
    usual = raised.resolution * ends**2 * objective.total
    return raised if usual <= USUAL * objective.mean else objective


def _effort(finest: Level) -> Effort:
    return OF_SMALL if finest.n <= SMALL else OF_MEDIUM if finest.n <= MEDIUM else OF_LARGE
