"""Degrees by how large they could be."""

from mgraph.algorithms.centrality.degree_centrality.method import ALGORITHM
from mgraph.algorithms.centrality.degree_centrality.method import degree_centrality as method

__all__ = ["ALGORITHM", "method"]
