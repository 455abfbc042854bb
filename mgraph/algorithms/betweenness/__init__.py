"""Betweenness centrality."""

from mgraph.algorithms.betweenness.method import ALGORITHM
from mgraph.algorithms.betweenness.method import betweenness_centrality as method

__all__ = ["ALGORITHM", "method"]
