"""Multi-source breadth-first search: distance from the nearest source."""

from mgraph.algorithms.paths.multi_source_bfs.method import ALGORITHM, multi_source_bfs

__all__ = ["ALGORITHM", "multi_source_bfs"]
