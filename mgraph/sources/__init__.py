"""Sources for `DynamicGraph.ingest` that generate edges on the workers."""

from mgraph.sources.rmat import Rmat

__all__ = ["Rmat"]
