"""Betweenness centrality."""

from mgraph.algorithms.centrality.betweenness.method import ALGORITHM, betweenness_centrality

__all__ = ["ALGORITHM", "betweenness_centrality"]
