"""The worker's ends of the sessions with clients, the thread in which a shard works, and published graphs."""
