"""A shortest path between two vertices."""

from mgraph.algorithms.paths.shortest_path.method import ALGORITHM
from mgraph.algorithms.paths.shortest_path.method import shortest_path as method

__all__ = ["ALGORITHM", "method"]
