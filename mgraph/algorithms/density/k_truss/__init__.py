"""The k-truss of a graph."""

from mgraph.algorithms.density.k_truss.method import ALGORITHM, k_truss

__all__ = ["ALGORITHM", "k_truss"]
