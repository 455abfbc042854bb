"""Lengths of shortest paths that follow changes of the graph; breadth-first search, paths and components use them."""
