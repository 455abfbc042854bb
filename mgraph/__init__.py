"""mgraph: dynamic graphs on a GPU or the CPU of this process, or distributed over a Dask cluster."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mgraph.errors import (
    CapacityError,
    DeviceError,
    GraphClosed,
    GraphLost,
    InvalidBatch,
    InvalidOption,
    MgraphError,
    NoPath,
    ReadError,
    StoreError,
    UnknownVertex,
    WorkerLost,
)

if TYPE_CHECKING:
    from mgraph.batch import MAX_VERTICES, EdgeBatch
    from mgraph.client.asynchronous import AsyncDynamicGraph
    from mgraph.client.batches.mixed import Answers
    from mgraph.client.published.listing import PublishedGraph, list_graphs, unpublish
    from mgraph.client.results.results import VertexValues
    from mgraph.graph import DynamicGraph, UpdateReport
    from mgraph.operations import Operations

__version__ = "0.1.0"

__all__ = [
    "MAX_VERTICES",
    "Answers",
    "AsyncDynamicGraph",
    "CapacityError",
    "DeviceError",
    "DynamicGraph",
    "EdgeBatch",
    "GraphClosed",
    "GraphLost",
    "InvalidBatch",
    "InvalidOption",
    "MgraphError",
    "NoPath",
    "Operations",
    "PublishedGraph",
    "ReadError",
    "StoreError",
    "UnknownVertex",
    "UpdateReport",
    "VertexValues",
    "WorkerLost",
    "list_graphs",
    "unpublish",
]

# Imported at their first use, since they load NumPy, the structures and algorithms.
_LATE = {
    "MAX_VERTICES": "mgraph.batch",
    "Answers": "mgraph.client.batches.mixed",
    "AsyncDynamicGraph": "mgraph.client.asynchronous",
    "DynamicGraph": "mgraph.graph",
    "EdgeBatch": "mgraph.batch",
    "Operations": "mgraph.operations",
    "PublishedGraph": "mgraph.client.published.listing",
    "UpdateReport": "mgraph.graph",
    "VertexValues": "mgraph.client.results.results",
    "list_graphs": "mgraph.client.published.listing",
    "unpublish": "mgraph.client.published.listing",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
