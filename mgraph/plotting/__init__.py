"""Plots of a graph: its last minutes, and a neighbourhood. They need Matplotlib."""

from mgraph.plotting.drawing import draw
from mgraph.plotting.timeline import plot

__all__ = ["draw", "plot"]
