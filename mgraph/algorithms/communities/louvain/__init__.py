"""Communities by the Louvain method."""

from mgraph.algorithms.communities.louvain.method import ALGORITHM, louvain

__all__ = ["ALGORITHM", "louvain"]
