"""Communities by the Louvain method."""

from mgraph.algorithms.communities.louvain.method import ALGORITHM
from mgraph.algorithms.communities.louvain.method import louvain as method

__all__ = ["ALGORITHM", "method"]
