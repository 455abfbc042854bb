"""Records of runs, and their archive."""
