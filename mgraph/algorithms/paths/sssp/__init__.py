"""Shortest paths by weights, from one source."""

from mgraph.algorithms.paths.sssp.method import ALGORITHM, sssp

__all__ = ["ALGORITHM", "sssp"]
