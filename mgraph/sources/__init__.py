"""Sources of a graph: random edges, and sources with offsets."""

from mgraph.sources.folder import Folder
from mgraph.sources.kafka import Kafka
from mgraph.sources.places import Numbered
from mgraph.sources.rmat import Rmat

__all__ = ["Folder", "Kafka", "Numbered", "Rmat"]
