"""Hubs and authorities."""

from mgraph.algorithms.centrality.hits.method import ALGORITHM, hits

__all__ = ["ALGORITHM", "hits"]
