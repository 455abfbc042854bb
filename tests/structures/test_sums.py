"""Running sums by chunks equal NumPy's, of any length and modulo 2**64."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph.device import Device
from mgraph.structures.sums import CHUNK, running_sums, sum_by_chunks


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("n", [0, 1, 5, 1023, CHUNK - 1, CHUNK, CHUNK + 1, 70 * CHUNK + 77])
@pytest.mark.parametrize("sums", [running_sums, sum_by_chunks])
def test_sums_equal_numpys(sums, n, device):
    device, words = Device.of(device), np.random.default_rng(n).integers(0, 1 << 63, n + 2, np.uint64)
    here = device.asarray(words.copy())
    sums(device, here[1:-1])
    expected = words.copy()
    expected[1:-1] = np.cumsum(words[1:-1])  # wraps around
    np.testing.assert_array_equal(Device.to_host(here), expected)
