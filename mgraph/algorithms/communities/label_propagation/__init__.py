"""Label propagation."""

from mgraph.algorithms.communities.label_propagation.method import ALGORITHM, label_propagation

__all__ = ["ALGORITHM", "label_propagation"]
