"""Building blocks of the algorithms: frontiers, gathered values, replicated arrays, label counts, in-edges."""
