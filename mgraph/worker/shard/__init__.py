"""Shard of a graph on a worker: rows, their times, recent changes, and results."""
