"""A graph in the user's own process, on one device, without Dask: `DynamicGraph(n_vertices=...)` without a client."""

from mgraph.local.opening import Here

__all__ = ["Here"]
