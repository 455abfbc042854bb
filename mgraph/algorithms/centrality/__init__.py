"""Centrality: the importance of each vertex."""
