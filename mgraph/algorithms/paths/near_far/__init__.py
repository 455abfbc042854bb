"""Near-far search for shortest paths, on a single rank or several."""
