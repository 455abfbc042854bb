"""The check that no edge of a graph has a negative weight."""
