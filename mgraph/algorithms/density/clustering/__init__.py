"""Local clustering coefficients."""

from mgraph.algorithms.density.clustering.method import ALGORITHM
from mgraph.algorithms.density.clustering.method import clustering as method

__all__ = ["ALGORITHM", "method"]
