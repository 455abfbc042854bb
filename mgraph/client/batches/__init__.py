"""Changes of a graph: batches and mixed streams, split among the workers, and batches in flight."""
