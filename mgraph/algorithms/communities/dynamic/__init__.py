"""Maintained communities, which keep their names.

`communities` applies the changes of batches to the communities of `louvain` and `leiden`. `live_level` moves vertices,
`splits` divides communities that are no longer connected, `region` improves some communities on all levels, and `names`
passes names from one read to the next.

Results depend on the updates before them. So only counts decide how an update is made, never times: the same batches
and the same reads give the same communities and names on any number of ranks and with any structure.

References
----------
.. [1] S. Sahu, "A starting point for dynamic community detection with Leiden algorithm", 2024. Source of the frontier
   of changed edges' ends, from which moves spread, and of strengths that take deltas.
.. [2] C. Lin et al., "HIT-Leiden: incremental maintenance of Leiden communities", arXiv 2601.08554, 2026. Source of
   dividing only those communities that lost an edge or a member, and of improving on all levels only what changed.
"""

from mgraph.algorithms.communities.dynamic.communities import Communities
from mgraph.algorithms.communities.dynamic.names import Names

__all__ = ["Communities", "Names"]
