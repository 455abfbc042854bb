"""The part of mgraph that runs in the user's process: numbering, checks, sessions, results.

It imports nothing from `mgraph.worker`.
"""
