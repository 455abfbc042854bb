"""Published graphs, which other clients find by their names."""
