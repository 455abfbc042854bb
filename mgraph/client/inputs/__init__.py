"""Inputs of a graph: data that the workers read, and streams that this process reads."""
