"""Weakly connected components."""

from mgraph.algorithms.communities.components.method import ALGORITHM, connected_components

__all__ = ["ALGORITHM", "connected_components"]
