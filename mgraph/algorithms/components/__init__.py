"""Weakly connected components."""

from mgraph.algorithms.components.method import ALGORITHM
from mgraph.algorithms.components.method import connected_components as method

__all__ = ["ALGORITHM", "method"]
