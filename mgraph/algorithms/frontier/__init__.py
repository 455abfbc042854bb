"""The frontier of a breadth-first search: its bitmaps and lists of vertices, on one rank or several."""
