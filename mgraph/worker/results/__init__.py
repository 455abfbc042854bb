"""Computing with results on the workers: arithmetic, and results that follow the graph."""
