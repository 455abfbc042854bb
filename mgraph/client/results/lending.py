"""A result as a Dask DataFrame whose partitions are where the result is."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from mgraph.client.inputs.ingest import Paused, waited
from mgraph.client.results.held import Held
from mgraph.tasks import frame_of, part_of

__all__ = ["to_dask"]


def to_dask(client: Client, held: Held, translated: dict[str, Any], index: Any) -> Any:
    """The columns of a result; see `mgraph.client.results.handles.VertexValues.to_dask`.

    Parameters
    ----------
    client : distributed.Client
    held : Held
    translated : mapping of str to pandas.Series
        The columns that the ranks do not have as users see them, in rank order.
    index : pandas.Index
        The vertices, in rank order.
    """
    given, names, token = pd.DataFrame(translated, index), list(held.dtypes), uuid.uuid4().hex
    rows = held.call("lend", token=token)[0]["rows"]
    coordinator, starts = held.coordinator, held.numbering.partition.starts
    parts = [
        client.submit(
            part_of,
            *(coordinator.status.graph, rank, token, names, given.iloc[first:end]),
            workers=[coordinator.status.addresses[rank]],
            key=f"mgraph-result-{token}-{rank}",
        )
        for rank, (first, end) in enumerate(pairwise(starts))
    ]
    waited(parts, coordinator.check, Paused(client, coordinator.status.addresses).check, "the result")
    empty = {name: np.empty((*rows[name], 0), dtype) for name, dtype in held.dtypes.items()}
    meta = frame_of(empty, names, given.iloc[:0])
    return dd.from_delayed(parts, meta, _divisions(index, starts), "mgraph-result", verify_meta=False)


def _divisions(index: Any, starts: Sequence[int]) -> tuple[int, ...] | None:
    """The first vertex of each partition, and the last vertex of all; None if they are not known."""
    if not isinstance(index, pd.RangeIndex) or any(first == end for first, end in pairwise(starts)):
        return None
    return (*starts[:-1], starts[-1] - 1)
