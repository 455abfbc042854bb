"""Shortest paths by hops or weights, from a single source or several, computed per call or maintained."""
