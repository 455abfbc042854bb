"""Hubs and authorities."""

from mgraph.algorithms.centrality.hits.method import ALGORITHM
from mgraph.algorithms.centrality.hits.method import hits as method

__all__ = ["ALGORITHM", "method"]
