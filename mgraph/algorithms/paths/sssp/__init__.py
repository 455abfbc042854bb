"""Single-source shortest paths by weights."""

from mgraph.algorithms.paths.sssp.method import ALGORITHM, sssp

__all__ = ["ALGORITHM", "sssp"]
