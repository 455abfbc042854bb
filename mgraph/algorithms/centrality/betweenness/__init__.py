"""Betweenness centrality."""

from mgraph.algorithms.centrality.betweenness.method import ALGORITHM
from mgraph.algorithms.centrality.betweenness.method import betweenness_centrality as method

__all__ = ["ALGORITHM", "method"]
