"""Graphs that belong to their workers: they are published under a name, and other clients find them by it."""
