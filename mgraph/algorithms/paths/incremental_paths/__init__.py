"""Incremental shortest paths, for maintained breadth-first search, paths and components."""
