"""Worker's ends of sessions, threads of shards, and published graphs."""
