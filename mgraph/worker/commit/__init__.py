"""A batch's way into the shards: routed to the owners of its edges, prepared, voted on, committed or discarded."""
