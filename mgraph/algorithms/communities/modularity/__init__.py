"""The modularity of given communities."""

from mgraph.algorithms.communities.modularity.method import ALGORITHM
from mgraph.algorithms.communities.modularity.method import modularity as method

__all__ = ["ALGORITHM", "method"]
