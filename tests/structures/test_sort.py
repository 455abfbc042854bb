"""Sorts of keys, whichever it is that suits their number, against NumPy's stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from edge_model import scaled

from mgraph.device import Device
from mgraph.structures.sort import SMALL, make_keys, sort_keys, sort_small


@pytest.fixture(params=["cpu", "cpu, one thread", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request) -> Device:
    return Device("cpu", threads=1) if "," in request.param else Device.of(request.param)


def test_keys(device):
    src, dst = (device.asarray(np.array(ids, np.uint32)) for ids in ([0, 1, 2**32 - 2], [2**32 - 2, 0, 5]))
    keys = Device.to_host(make_keys(device, src, dst))
    assert keys.dtype == np.uint64
    assert keys.tolist() == [2**32 - 2, 1 << 32, (2**32 - 2) << 32 | 5]


@pytest.mark.parametrize("n", [0, 1, 2, 1000, 100_000])
@pytest.mark.parametrize("bits", [1, 8, 20, 33, 64])
def test_sort_with_places_is_numpys_stable_sort(device, n, bits):
    keys = np.random.default_rng(bits).integers(0, 1 << bits, scaled(n) if n else 0, dtype=np.uint64)
    ordered, places = (Device.to_host(a) for a in sort_keys(device, device.asarray(keys.copy()), with_places=True))
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(ordered, keys[order])
    np.testing.assert_array_equal(places, order)


@pytest.mark.parametrize("n", [0, 1, 3, 1024, 1025, 5000, 40_000])  # one tile, one round of merges, two
@pytest.mark.parametrize("bits", [1, 10, 64])
def test_small_sort_is_numpys_stable_sort(device, n, bits):
    keys = np.random.default_rng(bits).integers(0, 1 << bits, scaled(n) if n > 5000 else n, dtype=np.uint64)
    order = np.argsort(keys, kind="stable")
    given = device.asarray(keys.copy())
    ordered, places = (Device.to_host(a) for a in sort_small(device, given, with_places=True))
    np.testing.assert_array_equal(ordered, keys[order])
    np.testing.assert_array_equal(places, order)
    alone, none = sort_small(device, given)
    np.testing.assert_array_equal(Device.to_host(alone), keys[order])
    assert none is None
    src, dst = (device.asarray(half.astype(np.uint32)) for half in (keys >> np.uint64(32), keys & np.uint64(2**32 - 1)))
    np.testing.assert_array_equal(Device.to_host(sort_small(device, src=src, dst=dst)[0]), keys[order])


@pytest.mark.parametrize("with_places", [False, True])
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("n", [1, 3000, SMALL + 1])
def test_columns_sort_as_their_keys_and_their_largest_ids_are_returned(device, n, told, with_places):
    rng = np.random.default_rng(n)
    src, dst = (rng.integers(0, most, scaled(n) if n > 5000 else n, dtype=np.uint32) for most in (50, 2**32 - 1))
    keys, largest = src.astype(np.uint64) << np.uint64(32) | dst, device.zeros(2, np.uint64) if told else None
    columns = {"src": device.asarray(src), "dst": device.asarray(dst)}
    ordered, places = sort_keys(device, **columns, largest=largest, with_places=with_places)
    order = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(Device.to_host(ordered), keys[order])
    assert (places is not None) == with_places
    if with_places:
        np.testing.assert_array_equal(Device.to_host(places), order)
    if told:
        assert Device.to_host(largest).tolist() == [src.max(), dst.max()]
    for name, column in (("src", src), ("dst", dst)):
        np.testing.assert_array_equal(Device.to_host(columns[name]), column)
