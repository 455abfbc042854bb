"""Graphs from frames, files, matrices and NetworkX, and back. `DynamicGraph` binds each function as a method."""

from mgraph.convert.files import from_csv, from_parquet
from mgraph.convert.frames import from_arrow, from_pandas, to_arrow, to_pandas
from mgraph.convert.graphs import from_networkx, to_networkx
from mgraph.convert.matrices import from_scipy, to_scipy

__all__ = [
    "from_arrow",
    "from_csv",
    "from_networkx",
    "from_pandas",
    "from_parquet",
    "from_scipy",
    "to_arrow",
    "to_networkx",
    "to_pandas",
    "to_scipy",
]
