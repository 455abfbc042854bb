"""The algorithms, one folder each. A program runs on all ranks in lockstep, in each shard's thread.

To add an algorithm, name its folder in the import and in `ALGORITHMS`, and bind its method in `DynamicGraph`.
"""

from mgraph.algorithms import (
    bfs,
    clustering,
    components,
    core_number,
    degree_centrality,
    k_core,
    label_propagation,
    louvain,
    modularity,
    pagerank,
    strong_components,
    triangles,
)
from mgraph.algorithms.algorithm import Algorithm, Shard

__all__ = ["ALGORITHMS", "WARM", "Algorithm", "Shard", "warm"]

#: every algorithm, by the name that users call it by
ALGORITHMS: dict[str, Algorithm] = {
    folder.ALGORITHM.name: folder.ALGORITHM
    for folder in (
        bfs,
        clustering,
        components,
        core_number,
        degree_centrality,
        k_core,
        label_propagation,
        louvain,
        modularity,
        pagerank,
        strong_components,
        triangles,
    )
}

#: compiled when a graph is created, because most users call these first; the others are compiled before their first run
WARM = ("bfs", "pagerank")


def warm(shard: Shard) -> None:
    """Compile the kernels that the algorithms in `WARM` run on this shard. Takes seconds, once on each machine."""
    for name in WARM:
        ALGORITHMS[name].warm(shard)
