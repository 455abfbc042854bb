"""The vertices of the k-core."""

from mgraph.algorithms.density.k_core.method import ALGORITHM
from mgraph.algorithms.density.k_core.method import k_core as method

__all__ = ["ALGORITHM", "method"]
