"""Random walks from given vertices."""

from mgraph.algorithms.sampling.random_walks.method import ALGORITHM
from mgraph.algorithms.sampling.random_walks.method import random_walks as method

__all__ = ["ALGORITHM", "method"]
