"""PageRank by power iteration."""

from mgraph.algorithms.centrality.pagerank.method import ALGORITHM
from mgraph.algorithms.centrality.pagerank.method import pagerank as method

__all__ = ["ALGORITHM", "method"]
