"""Breadth-first search from several vertices at once, to the nearest of them."""

from mgraph.algorithms.paths.multi_source_bfs.method import ALGORITHM, multi_source_bfs

__all__ = ["ALGORITHM", "multi_source_bfs"]
