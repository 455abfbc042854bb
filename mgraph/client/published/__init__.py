"""Published graphs: they belong to their workers, and other clients find them by name."""
