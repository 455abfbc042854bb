"""Random walks from given vertices."""

from mgraph.algorithms.sampling.random_walks.method import ALGORITHM, random_walks

__all__ = ["ALGORITHM", "random_walks"]
