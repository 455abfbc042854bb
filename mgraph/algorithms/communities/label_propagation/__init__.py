"""Communities by label propagation."""

from mgraph.algorithms.communities.label_propagation.method import ALGORITHM
from mgraph.algorithms.communities.label_propagation.method import label_propagation as method

__all__ = ["ALGORITHM", "method"]
