"""Conversions of graphs from and to other formats. `DynamicGraph` binds them as methods."""

from mgraph.convert.arrays import from_dlpack
from mgraph.convert.files import from_csv, from_parquet
from mgraph.convert.frames import from_arrow, from_cudf, from_pandas, from_polars, to_arrow, to_pandas, to_polars
from mgraph.convert.graphs import from_networkx, to_networkx
from mgraph.convert.matrices import from_scipy, to_scipy
from mgraph.convert.partitions import from_dask
from mgraph.convert.read import read
from mgraph.convert.subgraph import ego, subgraph
from mgraph.convert.tensors import to_cugraph, to_pyg
from mgraph.convert.update_methods import delete, ingest, insert, update

__all__ = [
    "delete",
    "ego",
    "from_arrow",
    "from_csv",
    "from_cudf",
    "from_dask",
    "from_dlpack",
    "from_networkx",
    "from_pandas",
    "from_parquet",
    "from_polars",
    "from_scipy",
    "ingest",
    "insert",
    "read",
    "subgraph",
    "to_arrow",
    "to_cugraph",
    "to_networkx",
    "to_pandas",
    "to_polars",
    "to_pyg",
    "to_scipy",
    "update",
]
