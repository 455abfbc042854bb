"""PageRank by power iteration."""

from mgraph.algorithms.centrality.pagerank.method import ALGORITHM, pagerank

__all__ = ["ALGORITHM", "pagerank"]
