"""The core number of each vertex."""

from mgraph.algorithms.density.core_number.method import ALGORITHM, core_number

__all__ = ["ALGORITHM", "core_number"]
