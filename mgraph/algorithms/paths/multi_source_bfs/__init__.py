"""Breadth-first search from several vertices at once, to the nearest of them."""

from mgraph.algorithms.paths.multi_source_bfs.method import ALGORITHM
from mgraph.algorithms.paths.multi_source_bfs.method import multi_source_bfs as method

__all__ = ["ALGORITHM", "method"]
