"""How messages go over Dask's comms: what arrives is what was sent, wherever an array is put."""

from __future__ import annotations

import numpy as np
import pytest
from distributed.protocol import deserialize, dumps, loads
from distributed.protocol.serialize import Serialized

from mgraph.protocol import Call
from mgraph.wire import SMALL, decode, encode


def sent(array):
    """`array` after its way, and how many frames it took."""
    frames = dumps(encode(Call(1, 0, "has_edges", {"src": array, "starts": [0, 4], "nested": {"x": [array, None]}})))
    call = decode(loads([bytes(memoryview(frame)) for frame in frames]))
    found = call.args["src"]
    again = call.args["nested"]["x"][0]
    found, again = (deserialize(a.header, a.frames) if isinstance(a, Serialized) else a for a in (found, again))
    assert (call.method, list(call.args["starts"]), call.args["nested"]["x"][1]) == ("has_edges", [0, 4], None)
    np.testing.assert_array_equal(found, again)
    return found, len(frames)


@pytest.mark.parametrize("dtype", [np.uint32, np.int8, np.int64, np.float32, np.float64, bool])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 2), ()])
def test_small_arrays_are_part_of_the_message(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found, frames = sent(array)
    assert (found.dtype, found.shape, frames) == (array.dtype, shape, sent(np.zeros(1, np.int8))[1])
    np.testing.assert_array_equal(found, array)
    assert found.flags.writeable
    assert found.flags.aligned


@pytest.mark.parametrize(
    "array", [np.arange(SMALL // 8), np.arange(SMALL // 8 + 1), np.arange(9)[::-2], np.array(["a", "bc"])], ids=len
)
def test_all_arrays_arrive(array):
    found, frames = sent(array)
    np.testing.assert_array_equal(found, array)
    small = array.nbytes <= SMALL and array.dtype.kind == "i"
    assert (frames == sent(np.zeros(1, np.int8))[1]) == small


def test_numpy_scalars_become_pythons_wherever_they_are():
    scalars = {
        "int": np.int64(3),
        "float": np.float64(0.5),
        "bool": np.bool_(True),
        "nested": [np.float32(2), {"x": np.uint8(1)}],
    }
    args = decode(encode(Call(1, 0, "bfs", scalars))).args
    assert args == {"int": 3, "float": 0.5, "bool": True, "nested": [2.0, {"x": 1}]}
    assert [type(args[name]) for name in ("int", "float", "bool")] == [int, float, bool]
    assert [type(args["nested"][0]), type(args["nested"][1]["x"])] == [float, int]
