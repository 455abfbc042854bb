"""The algorithms, one folder each. A program runs on all ranks in lockstep, in each shard's thread.

To add an algorithm, name its folder in the import and in `ALGORITHMS`, and bind its method in `DynamicGraph`.
"""

from mgraph.algorithms import (
    betweenness,
    bfs,
    clustering,
    components,
    core_number,
    degree_centrality,
    distances,
    eigenvector_centrality,
    gather,
    hits,
    jaccard,
    k_core,
    k_hop,
    k_truss,
    katz_centrality,
    label_propagation,
    louvain,
    modularity,
    multi_source_bfs,
    overlap,
    pagerank,
    random_walks,
    sample_neighbors,
    shortest_path,
    sssp,
    strong_components,
    triangles,
)
from mgraph.algorithms.algorithm import Algorithm, Shard

__all__ = [
    "ALGORITHMS",
    "WARM",
    "Algorithm",
    "Shard",
    "eigenvector_centrality",
    "hits",
    "katz_centrality",
    "warm",
]

#: every algorithm, by the name that users call it by
ALGORITHMS: dict[str, Algorithm] = {
    folder.ALGORITHM.name: folder.ALGORITHM
    for folder in (
        *(bfs, distances, k_hop, multi_source_bfs, shortest_path, sssp),  # paths
        *(betweenness, degree_centrality, hits, pagerank),  # importance
        *(components, label_propagation, louvain, modularity, strong_components),  # groups
        *(clustering, core_number, k_core, k_truss, triangles),  # density
        *(jaccard, overlap),  # pairs
        *(random_walks, sample_neighbors),  # samples
        *(gather,),  # one's own
    )
}

#: compiled when a graph is created, because most users call these first; the others are compiled before their first run
WARM = ("bfs", "pagerank")


def warm(shard: Shard) -> None:
    """Compile the kernels that the algorithms in `WARM` run on this shard. Takes seconds, once on each machine."""
    for name in WARM:
        ALGORITHMS[name].warm(shard)
