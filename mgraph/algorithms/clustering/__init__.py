"""Local clustering coefficients."""

from mgraph.algorithms.clustering.method import ALGORITHM
from mgraph.algorithms.clustering.method import clustering as method

__all__ = ["ALGORITHM", "method"]
