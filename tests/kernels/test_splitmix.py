"""SplitMix64 is the same in kernels, in Python, and as its author published it."""

from __future__ import annotations

import numpy as np

from mgraph.splitmix import mix64, splitmix, start_of

PUBLISHED = (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821)
KERNEL = """
#include "kernels/splitmix.cuh"
struct Numbers {
    static constexpr int lanes = 1;
    i64 n;
    u64 start;
    u64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) out[i] = splitmix((u64)i, start);
    }
};
"""


def test_it_is_the_published_sequence():
    assert splitmix(np.arange(1, 6, dtype=np.uint64), 1234567).tolist() == list(PUBLISHED)


def test_kernels_have_the_same(machine):
    device, kernels = machine(KERNEL)
    start, out = start_of(5), device.zeros(1000, np.uint64)
    assert 0 <= start < 2**64
    kernels.Numbers(1000, n=1000, start=start, out=out)
    assert device.to_host(out).tolist() == splitmix(np.arange(1000, dtype=np.uint64), start).tolist()


def test_the_finaliser_is_a_bijection_that_spreads():
    keys = mix64(np.arange(1 << 16, dtype=np.uint64))
    assert len(np.unique(keys)) == 1 << 16
    assert np.bincount((keys >> np.uint64(60)).astype(int), minlength=16).min() > (1 << 12) * 9 // 10
