"""What a graph can read: random edges for `DynamicGraph.ingest`, and sources with places for `DynamicGraph.follow`."""

from mgraph.sources.folder import Folder
from mgraph.sources.kafka import Kafka
from mgraph.sources.places import Numbered
from mgraph.sources.rmat import Rmat

__all__ = ["Folder", "Kafka", "Numbered", "Rmat"]
