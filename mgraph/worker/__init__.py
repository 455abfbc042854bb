"""The part of mgraph that runs in a worker's process: sessions, shards and their calls.

Its folders are layers, in the order of `docs/contributing/architecture.md`. It imports nothing from `mgraph.client`.
"""
