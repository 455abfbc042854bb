"""Triangles at each vertex, and the transitivity of the graph."""

from mgraph.algorithms.density.triangles.method import ALGORITHM, transitivity
from mgraph.algorithms.density.triangles.method import triangles as method

__all__ = ["ALGORITHM", "method", "transitivity"]
