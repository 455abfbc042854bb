"""Reports to the user: outcomes of batches, loads of workers, the history and the metrics of a graph, progress bars."""
