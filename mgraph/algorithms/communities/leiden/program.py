"""The Leiden method on p ranks: communities are divided into connected parts, which become vertices.

In each level of an iteration vertices move, each community is divided into connected parts (`multilevel.level`), and
the parts become the vertices of the next level, which begin in the communities of their vertices. An iteration ends
when each community is one vertex. The next one begins on the graph with the communities found so far. In the first
sweep for the constant Potts model vertices choose in more turns: dense cores form only if vertices see who came before.

The first iteration ends its sweeps early, since later ones go on where it stopped. There are two iterations. If the
second one still gained, the graph's own vertices move once more, which gains most of what a third iteration would, and
communities that this disconnected are divided. A small graph has more iterations while they gain.

An iteration without refinement, as in Louvain's method, is faster, but joins more: later iterations do not divide again
what it joined, and find fewer of the communities by which a graph was drawn.

Each part is connected, and so is each community at the end: it is a part, or a component of a community.

References
----------
.. [1] V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing well-connected communities",
   Scientific Reports 9, 2019. The method.
"""

from __future__ import annotations

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.communities.dynamic.splits import FILE, divide, split_kernels
from mgraph.algorithms.communities.multilevel import Hierarchy, finest_level
from mgraph.algorithms.communities.multilevel import warm as warm_levels
from mgraph.algorithms.communities.multilevel.level import MOST_TURNS, TURNS

__all__ = ["descend", "run", "warm"]

ITERATIONS, SMALL, MOST_ITERATIONS = 2, 1 << 15, 10  #: in a graph of up to SMALL vertices at most MOST_ITERATIONS
ITERATION_GAIN = 1e-3  #: the smallest gain, as a share of the quality, after which another iteration follows
TOLERANCE, DECAY = 0.02, 0.3  #: of a sweep of the first iteration, as a share of the quality; its factor per level
REACH, LATE_REACH = 16.0, 32.0  #: the reach of moves (`Level.improve`), in the first iteration and later
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
    most = MOST_ITERATIONS if shard.n_vertices <= SMALL else ITERATIONS
    levels, gain, connected = 0, 0.0, True
    for iteration in range(most if finest.objective.total else 0):
        if iteration >= ITERATIONS and gain < ITERATION_GAIN * finest.value():
            break
        hierarchy, before = Hierarchy(finest), finest.value()
        descend(hierarchy, max_levels, seed + SEEDS * iteration, alone=iteration == 0)
        levels, connected = hierarchy.levels, hierarchy.level.inside == hierarchy.level.loops
        hierarchy.ascend()
        gain = finest.value() - before

    # While there is something to gain, let vertices move once more. Divide what is not connected any more.
    if finest.objective.total and gain >= ITERATION_GAIN * finest.value():
        finest.improve(seed + SEEDS * most, reach=LATE_REACH)
        connected = False
    if not connected:
        finest.start(divide(finest, split_kernels(finest), None).labels, finest.inside)

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
    for number in range(max_levels):
        level = levels.level
        tolerance, reach = (TOLERANCE * DECAY**number, REACH) if alone else (0.0, LATE_REACH)
        crowding = alone and number == 0 and level.objective.name == "cpm"
        level.improve(seed + number, tolerance, first_turns=MOST_TURNS if crowding else TURNS, reach=reach)
        if level.inside == level.loops or not levels.coarsen(level.refine(seed + number, level.objective)):
            break
