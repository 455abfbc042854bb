"""One worker's part of a graph: its rows, their times, what the last batches changed, and results that stay here."""
