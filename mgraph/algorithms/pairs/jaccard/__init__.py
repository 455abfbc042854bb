"""Jaccard's coefficient of pairs of vertices."""

from mgraph.algorithms.pairs.jaccard.method import ALGORITHM
from mgraph.algorithms.pairs.jaccard.method import jaccard as method

__all__ = ["ALGORITHM", "method"]
