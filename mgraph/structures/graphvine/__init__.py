"""GraphVine: a tree of edge blocks for each vertex (GraphVine paper)."""

from mgraph.structures.graphvine.structure import GraphVine

__all__ = ["GraphVine"]
