"""Sampled neighbours of neighbours, for learning."""

from mgraph.algorithms.sampling.sample_neighbors.method import ALGORITHM, sample_neighbors

__all__ = ["ALGORITHM", "sample_neighbors"]
