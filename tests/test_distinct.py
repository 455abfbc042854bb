from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph.device import Device
from mgraph.distinct import distinct


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kind", [np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_numbers_are_those_of_numpy(device: str, kind: Any, n: int) -> None:
    values = fresh_rng().integers(0, 300, n).astype(kind)
    if n:
        values[0] = np.iinfo(kind).max
    given = Device(device).asarray(values)
    found = distinct(given)
    assert found.dtype == kind and type(found) is type(given)
    np.testing.assert_array_equal(Device.to_host(found), np.unique(values))
    np.testing.assert_array_equal(Device.to_host(given), values)


def test_strings() -> None:
    assert distinct(np.array(["b", "a", "b", "é"], object)).tolist() == ["a", "b", "é"]
