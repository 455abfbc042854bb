"""The table of remote calls: every handler of the workers is in it, and what follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgraph import batch, operations
from mgraph.calls import CALLS, CHANGES, IN_PLACE, CallSize, Kind
from mgraph.worker.calls import HANDLERS

IDS = np.zeros(10, np.uint32)
FLOATS = np.zeros(10, np.float32)


def test_each_handler_of_the_workers_is_in_the_table_and_each_call_has_one():
    assert {call.handler for call in CALLS.values()} == set(HANDLERS)
    assert set(HANDLERS) <= set(CALLS)  # a worker finds the record of a call by its handler's name


def test_what_changes_the_graph_is_decided_by_all_ranks():
    assert all(call.exchange for call in CALLS.values() if call.kind in (Kind.CHANGE, Kind.MOVE) or call.epoch)
    assert {call.name for call in CALLS.values() if call.epoch} == CHANGES - {"drop_vertices"}


@pytest.mark.parametrize(
    ("name", "args", "size"),
    [
        ("update", {"src": IDS, "dst": IDS, "op": None, "weight": None, "epoch": 3}, CallSize(80, 10, False)),
        ("update", {"src": IDS, "dst": IDS, "op": -1}, CallSize(80, 10, False)),
        ("update", {"src": IDS, "dst": IDS, "weight": FLOATS}, CallSize(120, 10, True)),
        ("updates", {"sizes": np.array([4, 6]), "src": IDS, "dst": IDS}, CallSize(96, 10, False)),
        ("execute", {"kind": IDS.astype(np.int8), "src": IDS, "dst": IDS}, CallSize(90, 10, True)),
        ("query", {"kind": IDS.astype(np.int8), "src": IDS, "dst": IDS}, CallSize(90, 10, True)),
        ("has_edges", {"src": IDS, "dst": IDS}, CallSize(80)),
        ("run", {"ids": IDS, "data": {"a": {"values": np.zeros(4)}}, "source": b"12345"}, CallSize(40 + 32 + 5)),
    ],
)
def test_the_size_of_a_call_is_its_bytes_wherever_they_are_and_its_operations(name: str, args: Any, size: CallSize):
    assert CALLS[name].size(args) == size


def test_columns_are_copied_ahead_and_read_in_place_for_all_calls_with_operations():
    by_columns = {call.name: call.columns for call in CALLS.values() if call.columns}
    edges, stream = batch.COLUMNS, operations.COLUMNS
    assert by_columns == {"update": edges, "updates": edges, "execute": stream, "query": stream}
    assert {*edges, *stream} == IN_PLACE
