"""For each vertex a reduction over its neighbours, of an expression in Python."""

from mgraph.algorithms.primitives.gather.method import ALGORITHM, gather

__all__ = ["ALGORITHM", "gather"]
