"""Jaccard's coefficient of pairs of vertices."""

from mgraph.algorithms.jaccard.method import ALGORITHM
from mgraph.algorithms.jaccard.method import jaccard as method

__all__ = ["ALGORITHM", "method"]
