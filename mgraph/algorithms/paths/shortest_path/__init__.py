"""Shortest path between two vertices."""

from mgraph.algorithms.paths.shortest_path.method import ALGORITHM, shortest_path

__all__ = ["ALGORITHM", "shortest_path"]
