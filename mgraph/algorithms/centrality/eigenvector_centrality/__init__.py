"""Eigenvector centrality, written with `gather`."""

from mgraph.algorithms.centrality.eigenvector_centrality.method import eigenvector_centrality as method

__all__ = ["method"]
