"""Distances in edges from several vertices."""

from mgraph.algorithms.distances.method import ALGORITHM
from mgraph.algorithms.distances.method import distances as method

__all__ = ["ALGORITHM", "method"]
