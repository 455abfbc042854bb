"""Katz centrality, written with `gather`."""

from mgraph.algorithms.centrality.katz_centrality.method import katz_centrality as method

__all__ = ["method"]
