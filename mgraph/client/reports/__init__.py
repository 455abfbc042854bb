"""Reports to the user: outcomes of batches, loads of workers, the history of a graph, progress bars."""
