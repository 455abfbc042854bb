"""A rank's part of the graph's store: writing it, snapshots, and making the graph again from it."""
