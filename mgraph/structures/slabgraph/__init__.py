"""SlabGraph: a hash table of slabs for each vertex (SlabGraph paper)."""

from mgraph.structures.slabgraph.structure import SlabGraph

__all__ = ["SlabGraph"]
