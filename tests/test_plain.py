"""Plain values as bytes: what comes back, what is refused, and that no bytes run code."""

from __future__ import annotations

import pickle

import msgpack
import numpy as np
import pytest
from mutations import PICKLE, Runs, hostile

from mgraph.errors import CapacityError, MgraphError
from mgraph.failures import decode_error, encode_error
from mgraph.plain import NotPlain, pack, unpack
from mgraph.protocol import Call, Result, ShardState, from_dict, to_dict


def test_values_cross_as_they_are():
    fields = {
        "none": None, "bool": True, "int": -(1 << 63), "large": (1 << 64) - 1, "float": float("inf"), "text": "é\0",
        "bytes": b"\xff", "tuple": (1, (2, 3)), "dict": {1: "a", "b": {}}, "scalar": np.int64(7),
        "truth": np.bool_(True),
        "array": np.arange(6, dtype=np.uint32).reshape(2, 3), "empty": np.zeros((0, 2), np.float32),
        "strided": np.arange(10)[::-3], "times": np.array(["2026-01-01"], "M8[ns]"),
    }  # fmt: skip
    back = unpack(pack(fields))
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            assert back[name].dtype == value.dtype
            np.testing.assert_array_equal(back[name], value)
            back[name][...] = 0  # may be written to
        else:
            assert back[name] == value
            assert type(back[name]) is (type(value.item()) if isinstance(value, np.generic) else type(value))


@pytest.mark.parametrize("value", [1 << 64, object(), {1, 2}, 1j, np.array(["a"]), np.array([None]), ValueError("x")])
def test_other_values_are_refused(value):
    with pytest.raises(NotPlain):
        pack({"value": [value]})


def test_a_deep_nesting_is_refused():
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotPlain):
        pack(value)


SEEDS = {
    "error": encode_error(CapacityError("rank 1: no room")),
    "call": pack(to_dict(Call(1, 0, "update", {"src": np.arange(5, dtype=np.uint32), "epoch": 3}, ("r1",)))),
    "result": pack(to_dict(Result(1, {"counts": np.arange(6)}, ShardState(3)))),
    "pickle": PICKLE,
    "array": msgpack.packb({"mgraph array": "|O", "shape": [1], "bytes": PICKLE}),
}


def read(data: bytes) -> None:
    """Read a message in each of the ways that take bytes."""
    assert isinstance(decode_error(data), Exception)
    fields = unpack(data)
    if isinstance(fields, dict):
        from_dict(fields)


def messages(count: int) -> None:
    hostile(read, [*SEEDS.values()], count, (NotPlain, MgraphError, TypeError))  # the last for fields of no message


def test_a_pickle_would_have_run():
    pickle.loads(PICKLE)
    assert Runs.ran
    Runs.ran = False


def test_hostile_bytes_run_no_code():
    messages(3_000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_600_000_hostile_messages():
    messages(600_000)
