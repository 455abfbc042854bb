"""Runs of algorithms, and their results: handles to columns on the workers, and maintained results."""
