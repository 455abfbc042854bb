"""Multilevel methods: vertices move between communities, and communities become the vertices of a smaller graph."""

from mgraph.algorithms.communities.multilevel.hierarchy import Hierarchy, finest_level, warm
from mgraph.algorithms.communities.multilevel.level import FILE, Level

__all__ = ["FILE", "Hierarchy", "Level", "finest_level", "warm"]
