"""Shortest paths: by edges or by weights, from one vertex or several, for one call or maintained."""
