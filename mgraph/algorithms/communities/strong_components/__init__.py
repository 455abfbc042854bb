"""Strongly connected components."""

from mgraph.algorithms.communities.strong_components.method import ALGORITHM, strongly_connected_components

__all__ = ["ALGORITHM", "strongly_connected_components"]
