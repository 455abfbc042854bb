"""Shortest paths by weights, from one source."""

from mgraph.algorithms.sssp.method import ALGORITHM
from mgraph.algorithms.sssp.method import sssp as method

__all__ = ["ALGORITHM", "method"]
