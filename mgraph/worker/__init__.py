"""Worker's side of mgraph: sessions, shards and their calls.

Its folders are layers, in the order of `docs/contributing/architecture.md`. It imports nothing from `mgraph.client`.
"""
