"""Shortest paths by weights, from one source."""

from mgraph.algorithms.paths.sssp.method import ALGORITHM
from mgraph.algorithms.paths.sssp.method import sssp as method

__all__ = ["ALGORITHM", "method"]
