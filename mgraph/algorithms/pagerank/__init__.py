"""PageRank by power iteration."""

from mgraph.algorithms.pagerank.method import ALGORITHM
from mgraph.algorithms.pagerank.method import pagerank as method

__all__ = ["ALGORITHM", "method"]
