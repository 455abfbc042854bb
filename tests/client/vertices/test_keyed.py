"""Batches and streams of keys in ids."""

from __future__ import annotations

import pytest

from mgraph import Operations, UnknownVertex
from mgraph.client.vertices.keyed import keyed
from mgraph.device import Device
from mgraph.keys import NONE, KeyTable
from mgraph.tables.ids import as_keys


def test_the_new_keys_of_a_refused_stream_are_dropped():
    table = KeyTable("string", Device("cpu"))
    table.number(as_keys(["ada"], "string", "src"))
    stream = Operations(["insert", "degree"], ["grace", "zoe"], ["ada", "ada"], keys="string")
    with pytest.raises(UnknownVertex, match="'zoe'"):
        keyed(table, stream, directed=True, logged=False)
    assert table.n == 1
    assert table.find(as_keys(["grace", "ada"], "string", "src")).tolist() == [NONE, 0]
