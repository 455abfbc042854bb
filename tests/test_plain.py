"""Plain values as bytes: what comes back, what is refused, and that no bytes run code."""

from __future__ import annotations

import pickle

import msgpack
import numpy as np
import pytest
from mutations import PICKLE, Runs, hostile

from mgraph import channel
from mgraph.errors import CapacityError
from mgraph.failures import decode_error, encode_error
from mgraph.plain import VECTORS, NotPlain, pack, pack_message, unpack
from mgraph.protocol import Call, Failure, Result, ShardState


@pytest.mark.parametrize("pack", [pack, pack_message])
def test_values_cross_as_they_are(pack):
    fields = {
        "none": None, "bool": True, "int": -(1 << 63), "large": (1 << 64) - 1, "float": float("inf"), "text": "é\0",
        "bytes": b"\xff", "tuple": (1, (2, 3)), "dict": {1: "a", "b": {}}, "scalar": np.int64(7),
        "truth": np.bool_(True),
        "array": np.arange(6, dtype=np.uint32).reshape(2, 3), "empty": np.zeros((0, 2), np.float32),
        "strided": np.arange(10)[::-3], "times": np.array(["2026-01-01"], "M8[ns]"), "none of it": np.zeros(0, bool),
        "big-endian": np.arange(3, dtype=">i4"), "half": np.ones(2, np.float16), "number": np.array(5),
        **{dtype.str: np.arange(3).astype(dtype) for dtype in VECTORS},
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


@pytest.mark.parametrize("pack", [pack, pack_message])
@pytest.mark.parametrize("value", [1 << 64, object(), {1, 2}, 1j, np.array(["a"]), np.array([None]), ValueError("x")])
def test_other_values_are_refused(pack, value):
    with pytest.raises(NotPlain):
        pack({"value": [value]})
    assert unpack(pack([1])) == (1,), "nothing is left of it"


@pytest.mark.parametrize("pack", [pack, pack_message])
def test_a_deep_nesting_is_refused(pack):
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotPlain):
        pack(value)


@pytest.mark.parametrize(("code", "data"), [(len(VECTORS), b""), (127, b"1234"), (3, b"12345")])
def test_extensions_that_are_no_vectors(code, data):
    with pytest.raises(NotPlain):
        unpack(msgpack.packb(msgpack.ExtType(code, data)))


SEEDS = {
    "error": encode_error(CapacityError("rank 1: no room")),
    "call": channel.pack(Call(1, 0, "update", {"src": np.arange(5, dtype=np.uint32), "epoch": 3}, ("r1",))),
    "result": channel.pack(Result(1, {"counts": np.arange(6).reshape(2, 3)}, ShardState(3))),
    "failure": channel.pack(Failure(1, encode_error(CapacityError("rank 1: no room")), ShardState(3))),
    "pickle": PICKLE,
    "array": msgpack.packb({"mgraph array": "|O", "shape": [1], "bytes": PICKLE}),
}


def read(data: bytes) -> None:
    """Read a message in each of the ways that take bytes."""
    assert isinstance(decode_error(data), Exception)
    unpack(data)
    channel.unpack(data)


def messages(count: int) -> None:
    hostile(read, [*SEEDS.values()], count, (NotPlain,))


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
