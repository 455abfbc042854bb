"""The part of mgraph that runs in the user's process: numbering, checks, sessions, results.

Its folders are layers, in the order of `docs/contributing/architecture.md`. It imports nothing from `mgraph.worker`.
"""
