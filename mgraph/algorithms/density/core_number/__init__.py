"""Core numbers of the vertices."""

from mgraph.algorithms.density.core_number.method import ALGORITHM, core_number

__all__ = ["ALGORITHM", "core_number"]
