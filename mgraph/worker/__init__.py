"""The part of mgraph that runs in a worker's process: sessions, shards and their calls.

It imports nothing from `mgraph.client`.
"""
