"""Commit of batches: routed to the edges' owners, prepared, voted on, committed or discarded."""
