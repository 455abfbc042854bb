"""The vertices within some edges of each of several vertices."""

from mgraph.algorithms.paths.k_hop.method import ALGORITHM
from mgraph.algorithms.paths.k_hop.method import k_hop as method

__all__ = ["ALGORITHM", "method"]
