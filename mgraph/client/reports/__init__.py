"""What a user is shown: reports of batches, the load of the workers, the history of a graph, progress bars."""
