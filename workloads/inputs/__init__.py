"""Inputs of the commands: streams of edges from files, and drawn ones."""
