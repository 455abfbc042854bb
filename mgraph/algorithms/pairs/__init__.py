"""Pairs of vertices: the similarity of their neighbours."""
