"""Reads of a graph: edges, degrees, neighbours, properties, and the difference between two epochs."""
