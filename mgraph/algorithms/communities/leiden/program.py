"""The Leiden method on p ranks: communities are divided into connected parts, which become vertices.

In each level of an iteration vertices move, each community is divided into connected parts (`multilevel.level`), and
the parts become the vertices of the next level, which begin in the communities of their vertices. An iteration ends
when each community is one vertex. The next one begins on the graph with the communities found so far. In the first
sweep for the constant Potts model vertices choose in more turns: dense cores form only if vertices see who came before.

An iteration without refinement, as in Louvain's method, is faster, but joins more: later iterations do not divide again
what it joined, and find fewer of the communities by which a graph was drawn.

Each part is connected, and so is each community at the end: it is a part.

References
----------
.. [1] V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing well-connected communities",
   Scientific Reports 9, 2019. The method.
"""

from __future__ import annotations

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.communities.multilevel import Hierarchy, finest_level, warm
from mgraph.algorithms.communities.multilevel.level import FEW, MOST_TURNS, TURNS
from mgraph.algorithms.primitives.replicated import all_gather

__all__ = ["descend", "run", "warm"]

LEAST_ITERATIONS, ITERATIONS, MOST_ITERATIONS = 2, 3, 10  #: at least; at most; at most in a small graph
ITERATION_GAIN = 1e-3  #: the smallest gain, as a share of the quality, after which another iteration follows
TOLERANCE, DECAY = 1e-3, 0.1  #: the smallest gain of a sweep of the first iteration; its factor from level to level
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
    levels = Hierarchy(finest)
    most = MOST_ITERATIONS if shard.n_vertices <= FEW else ITERATIONS
    before, value = 0.0, levels.level.value()
    for iteration in range(most if finest.objective.total else 0):
        if iteration >= LEAST_ITERATIONS and value - before < ITERATION_GAIN * value:
            break
        if iteration:
            finest.start(all_gather(shard, levels.members), levels.level.inside)
            levels = Hierarchy(finest)
        descend(levels, max_levels, seed + SEEDS * iteration, alone=iteration == 0)
        before, value = value, levels.level.value()

    # Name the communities by their smallest user's ids.
    reached = finest.objective.quality(value, shard.n_vertices)
    own, communities = levels.communities()
    return {"community": own}, {"quality": reached, "communities": communities, "levels": levels.levels}


def descend(levels: Hierarchy, max_levels: int, seed: int, alone: bool = False) -> None:
    """Improve the communities level by level. At the end each is connected, and a vertex of the last level.

    With `alone`, each vertex begins as a community of its own.
    """
    # Vertices move, and parts become vertices, until communities have one vertex.
    for number in range(max_levels):
        level = levels.level
        tolerance = TOLERANCE * DECAY**number if alone else 0.0
        crowding = alone and number == 0 and level.objective.name == "cpm"
        level.improve(seed + number, tolerance, first_turns=MOST_TURNS if crowding else TURNS)
        whole = level.fixed is None and level.inside == level.loops
        if whole or not levels.coarsen(level.refine(seed + number, level.objective)):
            break

    # With fixed vertices, communities stay several vertices.
    if levels.level.fixed is not None:
        return

    # At resolution 0, connected vertices of a community join, until no edge is left inside.
    while levels.level.inside > levels.level.loops:
        seed += 1
        levels.coarsen(levels.level.refine(seed, levels.level.objective.free))
    levels.level.start(inside=levels.level.loops)
