"""Moves of vertices between ranks, new orders, and removals."""
