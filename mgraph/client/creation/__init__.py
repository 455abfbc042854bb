"""Where a graph is, and how it gets there: made, opened from its store, moved to another place."""
