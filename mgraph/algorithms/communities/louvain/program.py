"""The Louvain method on p ranks: vertices join the neighbouring community with the largest gain of modularity.

At first every vertex is a community of its own. Vertices move while modularity gains (`multilevel.level`). Then the
communities become the vertices of a smaller graph, and so on.

References
----------
.. [1] V. D. Blondel, J.-L. Guillaume, R. Lambiotte, E. Lefebvre, "Fast unfolding of communities in large networks",
   J. Stat. Mech., 2008. The method.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.communities.multilevel import Hierarchy, finest_level, warm

__all__ = ["descend", "run", "warm"]

LEVEL_GAIN = 1e-7  #: the smallest gain after which another level follows
REACH = 64.0  #: the reach of moves (`Level.improve`)
TOLERANCE, DECAY = 1e-3, 0.1  #: least gain of a sweep on the first level, in modularity; factor per level


def run(shard: Shard, resolution: float = 1.0, max_levels: int = 50, seed: int = 0) -> Columns:
    """Return the community of each own vertex by the Louvain method.

    Parameters
    ----------
    shard : Shard
    resolution : float
    max_levels : int
        Upper bound of the graphs in which vertices move, 1 or more.
    seed : int
        Decides which vertices choose at the same time.

    Returns
    -------
    columns : dict
        "community", int64[hi - lo] on the shard's device: the smallest user's id in the community.
    scalars : dict
        ``modularity``; ``communities``; ``levels``, how often communities became vertices.

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
    levels = Hierarchy(finest_level(shard, "louvain", "modularity", resolution))
    q = descend(levels, max_levels, seed) if levels.level.objective.total else 0.0

    # Name the communities by their smallest user's ids.
    own, communities = levels.communities()
    return {"community": own}, {"modularity": q, "communities": communities, "levels": levels.levels}


def descend(levels: Hierarchy, max_levels: int, seed: int) -> float:
    """Improve the communities level by level, while modularity gains. Returns the modularity."""
    q, before = levels.level.improve(seed, TOLERANCE, reach=REACH), -np.inf
    while levels.levels + 1 < max_levels and q > before + LEVEL_GAIN and levels.coarsen():
        before, q = q, levels.level.improve(seed + levels.levels, TOLERANCE * DECAY**levels.levels, reach=REACH)
    return q
