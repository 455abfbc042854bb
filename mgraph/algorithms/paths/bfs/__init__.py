"""Breadth-first search."""

from mgraph.algorithms.paths.bfs.method import ALGORITHM, bfs

__all__ = ["ALGORITHM", "bfs"]
