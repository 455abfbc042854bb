"""Hubs and authorities."""

from mgraph.algorithms.hits.method import ALGORITHM
from mgraph.algorithms.hits.method import hits as method

__all__ = ["ALGORITHM", "method"]
