"""Building blocks of the algorithms: gathered values, replicated arrays, label counts, in-edges."""
