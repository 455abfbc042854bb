"""Strongly connected components."""

from mgraph.algorithms.communities.strong_components.method import ALGORITHM
from mgraph.algorithms.communities.strong_components.method import strongly_connected_components as method

__all__ = ["ALGORITHM", "method"]
