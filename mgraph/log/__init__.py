"""The log of a graph, its snapshots, and what they hold after a crash. It knows neither Dask nor shards."""
