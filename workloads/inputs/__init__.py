"""What the commands read: streams of edges from files, and drawn ones."""
