"""The log of a graph, its snapshots, and their recovery after a crash. It knows neither Dask nor shards."""
