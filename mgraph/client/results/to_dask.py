"""Convert a result to a Dask DataFrame whose partitions are on the workers of the result."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from mgraph.client.inputs.ingest import Paused, waited
from mgraph.client.results.remote_columns import RemoteColumns
from mgraph.tasks import frame_of, part_of

__all__ = ["to_dask"]


def to_dask(client: Client, remote: RemoteColumns, translated: dict[str, Any], index: Any) -> Any:
    """Make a Dask DataFrame of a result; `VertexValues.to_dask` documents it.

    Parameters
    ----------
    client : distributed.Client
    remote : RemoteColumns
    translated : mapping of str to pandas.Series
        The columns that this process translated to users' ids or keys, in rank order.
    index : pandas.Index
        The vertices, in rank order.
    """
    frame, names, token = pd.DataFrame(translated, index), list(remote.dtypes), secrets.token_hex(16)
    rows = remote.call("lend", token=token)[0]["rows"]
    coordinator, starts = remote.coordinator, remote.numbering.partition.starts
    # One task per rank, pinned to its worker, takes the copy that the rank keeps for the token.
    parts = [
        client.submit(
            part_of,
            *(coordinator.status.graph, rank, token, names, frame.iloc[first:end]),
            workers=[coordinator.status.addresses[rank]],
            key=f"mgraph-result-{token}-{rank}",
        )
        for rank, (first, end) in enumerate(pairwise(starts))
    ]
    waited(parts, coordinator.check, Paused(client, coordinator.status.addresses).check, "the result")
    empty = {name: np.empty((*rows[name], 0), dtype) for name, dtype in remote.dtypes.items()}
    meta = frame_of(empty, names, frame.iloc[:0])
    return dd.from_delayed(parts, meta, _divisions(index, starts), "mgraph-result", verify_meta=False)


def _divisions(index: Any, starts: Sequence[int]) -> tuple[int, ...] | None:
    """Return the first vertex of each partition and the last vertex of all; None if unknown."""
    if not isinstance(index, pd.RangeIndex) or any(first == end for first, end in pairwise(starts)):
        return None
    return (*starts[:-1], starts[-1] - 1)
