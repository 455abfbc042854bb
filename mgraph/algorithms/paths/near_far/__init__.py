"""Shortest paths by a near and a far list of vertices, on one rank or several."""
