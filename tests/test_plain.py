"""Plain values as bytes: what comes back, what is refused, and that no bytes run code."""

from __future__ import annotations

import pickle
import random

import msgpack
import numpy as np
import pytest

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


class Runs:
    """Pickles as a call that leaves a mark."""

    ran = False

    @classmethod
    def run(cls) -> None:
        cls.ran = True

    def __reduce__(self):
        return Runs.run, ()


SEEDS = {
    "error": encode_error(CapacityError("rank 1: no room")),
    "call": pack(to_dict(Call(1, 0, "update", {"src": np.arange(5, dtype=np.uint32), "epoch": 3}, ("r1",)))),
    "result": pack(to_dict(Result(1, {"counts": np.arange(6)}, ShardState(3)))),
    "pickle": pickle.dumps(Runs()),
    "array": msgpack.packb({"mgraph array": "|O", "shape": [1], "bytes": pickle.dumps(Runs())}),
}


def hostile(count: int, seed: int) -> None:
    """Read mutated messages: each is a value, or an error of mgraph's."""
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(SEEDS[rng.choice(sorted(SEEDS))])
        for _ in range(rng.randrange(6)):
            at = rng.randrange(len(data)) if data else 0
            change = rng.randrange(4)
            if change == 0 and data:
                data[at] = rng.randrange(256)
            elif change == 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 9))
            elif change == 2:
                del data[at : at + rng.randrange(1, 9)]
            else:
                data += SEEDS["pickle"]
        assert isinstance(decode_error(bytes(data)), Exception)
        try:
            fields = unpack(bytes(data))
            if isinstance(fields, dict):
                from_dict(fields)
        except (NotPlain, MgraphError, TypeError):  # the last for fields that a message has not
            pass
    assert not Runs.ran
    pickle.loads(SEEDS["pickle"])  # as a pickle it would have run
    assert Runs.ran
    Runs.ran = False


def test_hostile_bytes_run_no_code():
    hostile(3_000, random.SystemRandom().randrange(1 << 32))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_hostile_inputs():
    hostile(1_000_000, random.SystemRandom().randrange(1 << 32))
