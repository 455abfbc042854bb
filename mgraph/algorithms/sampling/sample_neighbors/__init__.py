"""Sampled neighbours of neighbours, for learning."""

from mgraph.algorithms.sampling.sample_neighbors.method import ALGORITHM
from mgraph.algorithms.sampling.sample_neighbors.method import sample_neighbors as method

__all__ = ["ALGORITHM", "method"]
