"""Calls of a graph on its workers: their order, memory for their arguments, failures, and locks."""
