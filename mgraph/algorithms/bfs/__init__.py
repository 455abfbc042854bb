"""Breadth-first search."""

from mgraph.algorithms.bfs.method import ALGORITHM
from mgraph.algorithms.bfs.method import bfs as method

__all__ = ["ALGORITHM", "method"]
