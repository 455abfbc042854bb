"""What `ingest` takes in a graph of this process: functions, files, and data in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgraph.batch import EdgeBatch, as_batch, check_columns
from mgraph.client.parts import Parts, dealt, function_or_files
from mgraph.errors import InvalidOption

__all__ = ["as_parts"]


def as_parts(source: Any, steps: int | None, columns: Mapping[str, str] | None) -> Parts:
    """A function, files, a part, or a list of parts; see `DynamicGraph.ingest` for what a part may be.

    Raises
    ------
    InvalidOption, InvalidBatch
        It is none of these; or a part is not valid. All parts are checked first.
    """
    columns = check_columns(columns)
    if (parts := function_or_files(source, 1, steps, columns, lambda function: function)) is not None:
        return parts
    batches = [_batch(part, columns) for part in (source if isinstance(source, list) else [source])]
    return Parts(dealt("keys", batches, 1, None))


def _batch(part: Any, columns: Mapping[str, str] | None) -> EdgeBatch:
    if hasattr(part, "__dask_graph__") or type(part).__module__.startswith("distributed."):
        raise InvalidOption(f"a {type(part).__name__} is Dask's; it is ingested by a graph with a Dask client")
    return as_batch(part, columns)
