"""Communities by the Leiden method."""

from mgraph.algorithms.communities.leiden.method import ALGORITHM, leiden

__all__ = ["ALGORITHM", "leiden"]
