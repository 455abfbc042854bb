"""The k-truss of a graph."""

from mgraph.algorithms.density.k_truss.method import ALGORITHM
from mgraph.algorithms.density.k_truss.method import k_truss as method

__all__ = ["ALGORITHM", "method"]
