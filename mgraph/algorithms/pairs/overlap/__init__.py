"""The overlap coefficient of pairs of vertices."""

from mgraph.algorithms.pairs.overlap.method import ALGORITHM
from mgraph.algorithms.pairs.overlap.method import overlap as method

__all__ = ["ALGORITHM", "method"]
