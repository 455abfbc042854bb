"""The Leiden method on p ranks: communities are divided into connected parts, which become vertices.

The first iteration is that of Louvain: vertices move while the quality gains, and communities become the vertices of a
smaller graph. It finds communities fast. The other iterations begin on the graph with the communities found so far, and
in each level vertices move, each community is divided into connected parts (`multilevel.level`), and the parts become
the vertices of the next level, which begin in the communities of their vertices. An iteration ends when each community
is one vertex.

Each part is connected, and so is each community at the end: it is a part.

References
----------
.. [1] V. A. Traag, L. Waltman, N. J. van Eck, "From Louvain to Leiden: guaranteeing well-connected communities",
   Scientific Reports 9, 2019. The method.
.. [2] S. Sahu, "GVE-Leiden: fast Leiden algorithm for community detection in shared memory setting", 2023. Source of
   the choice of the part with the largest gain, instead of a random one.
"""

from __future__ import annotations

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.communities.multilevel import Hierarchy, finest_level, warm
from mgraph.algorithms.primitives.replicated import all_gather

__all__ = ["descend", "run", "warm"]

ITERATIONS = 3
TOLERANCE, DECAY = 1e-2, 0.1  #: the smallest gain of a sweep on the first level; its factor from level to level
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
    for iteration in range(ITERATIONS if finest.objective.total else 0):
        if iteration:
            finest.start(all_gather(shard, levels.members), levels.level.inside)
            levels = Hierarchy(finest)
        descend(levels, max_levels, seed + SEEDS * iteration, iteration > 0)

    # Name the communities by their smallest user's ids.
    reached = finest.objective.quality(levels.level.value(), shard.n_vertices)
    own, communities = levels.communities()
    return {"community": own}, {"quality": reached, "communities": communities, "levels": levels.levels}


def descend(levels: Hierarchy, max_levels: int, seed: int, refining: bool = True) -> None:
    """Improve the communities level by level. At the end each is connected, and a vertex of the last level."""
    # Vertices move, and parts or communities become vertices, until communities have one vertex.
    for number in range(max_levels):
        level = levels.level
        level.improve(seed + number, 0.0 if refining else TOLERANCE * DECAY**number)
        if level.inside == level.loops:
            break
        if not levels.coarsen(level.refine(seed + number, level.objective) if refining else None):
            break

    # At resolution 0, connected vertices of a community join, until no edge is left inside.
    while levels.level.inside > levels.level.loops:
        seed += 1
        levels.coarsen(levels.level.refine(seed, levels.level.objective.free))
    levels.level.start(inside=levels.level.loops)
