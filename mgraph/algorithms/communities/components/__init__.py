"""Weakly connected components."""

from mgraph.algorithms.communities.components.method import ALGORITHM
from mgraph.algorithms.communities.components.method import connected_components as method

__all__ = ["ALGORITHM", "method"]
