"""Vertices of a graph: the translation of ids and keys, and the ranges of the workers."""
