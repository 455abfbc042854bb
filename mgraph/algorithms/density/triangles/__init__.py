"""Triangles at each vertex, and the transitivity of the graph."""

from mgraph.algorithms.density.triangles.method import ALGORITHM, transitivity, triangles

__all__ = ["ALGORITHM", "transitivity", "triangles"]
