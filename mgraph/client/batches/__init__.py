"""What changes a graph: batches and mixed streams, how they are dealt to the workers, and batches in flight."""
