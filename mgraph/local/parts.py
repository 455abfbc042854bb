"""What `ingest` takes in a graph of this process: functions, files, and data in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mgraph.batch import EdgeBatch, check_columns
from mgraph.client.inputs.parts import Parts, dealt, function_or_files, is_dasks
from mgraph.errors import InvalidOption
from mgraph.operations import Operations, as_part

__all__ = ["as_parts"]


def as_parts(source: Any, steps: int | None, columns: Mapping[str, str] | None, seats: Sequence[int] = (0,)) -> Parts:
    """A function, files, a part, or a list of parts; see `DynamicGraph.ingest` for what a part may be.

    Raises
    ------
    InvalidOption, InvalidBatch
        It is none of these; or a part is not valid. All parts are checked first.
    """
    columns = check_columns(columns)
    size = len(seats)
    if (parts := function_or_files(source, size, steps, columns, lambda function: function)) is not None:
        return parts
    batches = [_batch(part, columns) for part in (source if isinstance(source, list) else [source])]
    return Parts(dealt("keys", batches, size, None))


def _batch(part: Any, columns: Mapping[str, str] | None) -> EdgeBatch | Operations:
    if is_dasks(part):
        raise InvalidOption(f"a {type(part).__name__} is Dask's; it is ingested by a graph with a Dask client")
    return as_part(part, columns)
