"""Reduction of a Python expression over each vertex's neighbours."""

from mgraph.algorithms.primitives.gather.method import ALGORITHM, gather

__all__ = ["ALGORITHM", "gather"]
