"""The store of a graph: options, reports, and recovery after the loss of a worker."""
