"""The core number of each vertex."""

from mgraph.algorithms.density.core_number.method import ALGORITHM
from mgraph.algorithms.density.core_number.method import core_number as method

__all__ = ["ALGORITHM", "method"]
