"""Distances in edges from several vertices."""

from mgraph.algorithms.paths.distances.method import ALGORITHM
from mgraph.algorithms.paths.distances.method import distances as method

__all__ = ["ALGORITHM", "method"]
