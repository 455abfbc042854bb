"""Computations with results on the workers: arithmetic, and maintained results."""
