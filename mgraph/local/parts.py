"""Sources of `ingest` in this process: functions, files, and data in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgraph.client.inputs.source_parts import Parts, deal, function_or_files
from mgraph.errors import InvalidOption
from mgraph.operations import as_part
from mgraph.tables.kinds import is_dasks
from mgraph.tables.names import Names

__all__ = ["as_parts"]


def as_parts(source: Any, steps: int | None, names: Names, seats: Sequence[int] = (0,)) -> Parts:
    """Return the parts of a function, of files, or of data in memory.

    Raises
    ------
    InvalidOption, InvalidBatch
        The source is none of these, or a part is not valid. All parts are checked first.
    """
    size = len(seats)
    if (parts := function_or_files(source, size, steps, names, lambda function: function)) is not None:
        return parts
    batches = []
    for part in source if isinstance(source, list) else [source]:
        if is_dasks(part):
            raise InvalidOption(f"a {type(part).__name__} is Dask's; it is ingested by a graph with a Dask client")
        batches.append(as_part(part, names))
    return Parts(deal("keys", batches, size, names))
