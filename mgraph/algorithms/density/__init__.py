"""Density: triangles, clustering, cores and trusses."""
