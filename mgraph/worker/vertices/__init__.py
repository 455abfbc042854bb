"""Vertices that get another owner, another number, or leave: rebalance, reorder and remove_vertices."""
