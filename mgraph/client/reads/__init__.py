"""Reads of a graph: edges, degrees, properties, differences of epochs."""
