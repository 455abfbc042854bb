"""Running algorithms, and their results: handles to columns on the workers, and results that follow the graph."""
