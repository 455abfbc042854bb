"""Graphs in the user's own process, on one device, without Dask."""

from mgraph.local.opening import Here

__all__ = ["Here"]
