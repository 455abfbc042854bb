"""Closing edges to triangles: what a count of triangles and trusses share."""
