"""Breadth-first search."""

from mgraph.algorithms.paths.bfs.method import ALGORITHM
from mgraph.algorithms.paths.bfs.method import bfs as method

__all__ = ["ALGORITHM", "method"]
