"""How the calls of a graph reach its workers: their order, retries, whether there is memory for them, and turns."""
