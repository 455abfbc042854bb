"""What can be asked of a graph: edges, degrees, neighbors, its properties, the changes between two epochs."""
