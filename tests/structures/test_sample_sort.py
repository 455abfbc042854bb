"""The sort by a sample, on every machine, against NumPy's; with small buckets few keys take all of its ways."""

from __future__ import annotations

import numpy as np
import pytest
from edge_model import BUILD, scaled

from mgraph.device import Device
from mgraph.structures import sort
from mgraph.structures.sample_sort import sort_sampled

MOST_ID = 2**32 - 1
SHAPES = {
    "uniform": lambda rng, n: rng.integers(0, 1 << 50, n, dtype=np.uint64),
    "all bits": lambda rng, n: rng.integers(0, 2**64 - 1, n, dtype=np.uint64, endpoint=True),
    "sorted": lambda rng, n: np.sort(rng.integers(0, 1 << 50, n, dtype=np.uint64)),
    "reversed": lambda rng, n: np.sort(rng.integers(0, 1 << 50, n, dtype=np.uint64))[::-1].copy(),
    "one hub": lambda rng, n: np.uint64(7 << 32) | rng.integers(0, 1 << 20, n, dtype=np.uint64),
    "a hub among others": lambda rng, n: np.where(rng.random(n) < 0.8, 9 << 40, rng.integers(0, 1 << 50, n)).astype(
        "u8"
    ),
    "all equal": lambda rng, n: np.full(n, 5 << 32 | 3, np.uint64),
    "all the largest": lambda rng, n: np.full(n, 2**64 - 1, np.uint64),
    "few ids": lambda rng, n: rng.integers(0, 3, n, dtype=np.uint64) << np.uint64(32),
    "skewed": lambda rng, n: (rng.random(n) ** 20 * 2.0**50).astype(np.uint64),
}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request) -> Device:
    return Device.of(request.param)


def check(device: Device, keys: np.ndarray, **options: int) -> None:
    """Sort them as keys, which stay as they were, with places, and as columns, whose largest ids are told."""
    given, order = device.asarray(keys.copy()), np.argsort(keys, kind="stable")
    alone, none = sort_sampled(device, given, **options)
    np.testing.assert_array_equal(Device.to_host(alone), keys[order])
    assert none is None
    with_places = sort_sampled(device, given, with_places=True, **options)
    for got, wanted in zip(with_places, (keys[order], order), strict=True):
        np.testing.assert_array_equal(Device.to_host(got), wanted)
    np.testing.assert_array_equal(Device.to_host(given), keys)
    src, dst = ((keys >> np.uint64(32)).astype(np.uint32), (keys & np.uint64(MOST_ID)).astype(np.uint32))
    columns = {"src": device.asarray(src), "dst": device.asarray(dst)}
    for with_places in (False, True):
        largest = device.zeros(2, np.uint64)
        got, _ = sort_sampled(device, **columns, largest=largest, with_places=with_places, **options)
        np.testing.assert_array_equal(Device.to_host(got), keys[order])
        assert Device.to_host(largest).tolist() == [src.max(), dst.max()]


@pytest.mark.parametrize("shape", SHAPES)
def test_sorts_any_shape(device, shape):
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for n in (1, 2, 3, scaled(20_000) + int(rng.integers(1000))):
        check(device, SHAPES[shape](rng, n), bucket=int(rng.integers(16, 400)))


@pytest.mark.parametrize("shape", SHAPES)
def test_buckets_that_outgrow_their_slots(device, shape):
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print("seed", seed)
    rng = np.random.default_rng(seed)
    check(device, SHAPES[shape](rng, scaled(5000)), bucket=500, room=1)
    check(device, SHAPES[shape](rng, scaled(5000)), bucket=100, room=110)


@pytest.mark.parametrize("buckets", [2, 3, 1023, 1024, 1025, 4097] if BUILD == "plain" else [3, 1025])
def test_numbers_of_buckets(device, buckets):
    rng = np.random.default_rng(buckets)
    keys = rng.integers(0, 1 << 40, 4 * buckets, dtype=np.uint64)
    check(device, keys, bucket=4, room=64)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
def test_sizes_of_batches(shape):
    device, rng = Device.of("cuda"), np.random.default_rng(1)
    for n in (sort.SMALL, sort.SMALL + 1, 1_000_003, 1 << 20, (1 << 20) + 1):
        check(device, SHAPES[shape](rng, n))


@pytest.mark.gpu
@pytest.mark.parametrize("n", [1 << 24, sort.MOST_PLACED, sort.MOST_PLACED + 1, sort.MOST, sort.MOST + 1])
def test_many_keys(n):
    device = Device.of("cuda")
    keys = device.xp.random.randint(0, 1 << 22, n, dtype=np.uint64) << np.uint64(13)
    order = device.xp.argsort(keys)
    got, places = sort.sort_keys(device, keys.copy(), with_places=True)
    assert bool((got == keys[order]).all())
    assert bool((places == order).all())
    assert bool((sort.sort_keys(device, keys)[0] == got).all())
