"""A shortest path between two vertices."""

from mgraph.algorithms.shortest_path.method import ALGORITHM
from mgraph.algorithms.shortest_path.method import shortest_path as method

__all__ = ["ALGORITHM", "method"]
