"""Algorithms by family. A program runs on all ranks in lockstep, in each shard's thread.

To add an algorithm, name its module in the import and in `ALGORITHMS`, and bind its method in `DynamicGraph`.
"""

from mgraph.algorithms.algorithm import Algorithm, Shard
from mgraph.algorithms.centrality import (
    betweenness,
    degree_centrality,
    eigenvector_centrality,
    hits,
    katz_centrality,
    pagerank,
)
from mgraph.algorithms.communities import (
    components,
    label_propagation,
    leiden,
    louvain,
    modularity,
    strong_components,
)
from mgraph.algorithms.density import clustering, core_number, k_core, k_truss, triangles
from mgraph.algorithms.pairs import jaccard, overlap
from mgraph.algorithms.paths import bfs, distances, k_hop, multi_source_bfs, shortest_path, sssp
from mgraph.algorithms.primitives import gather
from mgraph.algorithms.sampling import random_walks, sample_neighbors

__all__ = [
    "ALGORITHMS",
    "WARM",
    "Algorithm",
    "Shard",
    "warm",
]

#: every algorithm, by the name of its method
ALGORITHMS: dict[str, Algorithm] = {
    module.ALGORITHM.name: module.ALGORITHM
    for module in (
        *(bfs, distances, k_hop, multi_source_bfs, shortest_path, sssp),  # paths
        *(betweenness, degree_centrality, eigenvector_centrality, hits, katz_centrality, pagerank),  # centrality
        *(components, label_propagation, leiden, louvain, modularity, strong_components),  # components and communities
        *(clustering, core_number, k_core, k_truss, triangles),  # density
        *(jaccard, overlap),  # pairs
        *(random_walks, sample_neighbors),  # sampling
        *(gather,),  # algorithms of users
    )
}

#: compiled when a graph is created, because most users call these first; others are compiled before their first run
WARM = ("bfs", "pagerank")


def warm(shard: Shard) -> None:
    """Compile the kernels of the algorithms in `WARM` for this shard. Takes seconds, once per machine."""
    for name in WARM:
        ALGORITHMS[name].warm(shard)
