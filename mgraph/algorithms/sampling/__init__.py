"""Sampling: random walks, and sampled neighbours for learning."""
