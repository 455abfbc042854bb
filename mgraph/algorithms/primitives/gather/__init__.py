"""For each vertex a reduction over its neighbours, of an expression in Python."""

from mgraph.algorithms.primitives.gather.method import ALGORITHM
from mgraph.algorithms.primitives.gather.method import gather as method

__all__ = ["ALGORITHM", "method"]
