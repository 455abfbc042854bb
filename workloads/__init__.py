"""Readers, generators, streams and experiments. ``python -m workloads --help`` lists the commands."""
