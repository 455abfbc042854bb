"""The control path: the coordinator beside the user, the sessions and shards on the workers."""
