"""A merge of two neighbouring runs touches these two alone: what is behind them, other lanes may be writing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest

MERGE = """
#include "kernels/tile_sort.cuh"
struct MergePair {
    static constexpr int lanes = 1;
    u64* keys;    // where the shared memory ends with the pair, in a tile of `all` items
    u32* places;  // of them
    i64 width;
    i64 all;
    u64* merged;
    u32* merged_places;
    DEVICE void operator()(Grid grid) const {
        TileSort tile{Block(), {keys, places}};
        ItemArray out{merged, merged_places};
        for (i64 i : grid.items(lesser(2 * width, all) / TileSort::run)) {
            Item mine[TileSort::run];
            tile.merge(mine, (int)i * TileSort::run, (int)width, (int)all);
            for (int j = 0; j < TileSort::run; ++j) out.set(i * TileSort::run + j, mine[j]);
        }
    }
};
"""
RUN = """
import sys
import numpy as np
from mgraph.device import Device
from mgraph.kernels import load

placed = int(sys.argv[2])
run, rng, most = 8 if placed else 16, np.random.default_rng(1), 2**64 - 1
merge = load(Device("cpu", threads=1), sys.argv[1], PLACED=placed).MergePair


def runs(width, n):  # keys of every order that two runs can have to each other
    for low, high in ((0, 1 << 40), (0, 3), (most, most)):
        yield rng.integers(low, high, n, dtype=np.uint64, endpoint=True)
    yield np.arange(n, dtype=np.uint64)
    yield np.roll(np.arange(n, dtype=np.uint64), width)
    yield np.where(np.arange(n) < width, most, 5).astype(np.uint64)
    yield np.where(np.arange(n) < width, 5, most).astype(np.uint64)


for width in (run, 2 * run, 8 * run):
    for n in (2 * width, width + run, width):  # the last run may be short or not there
        if n > 2 * width:
            continue
        for keys in runs(width, n):
            places = rng.permutation(n).astype(np.uint32) if placed else np.zeros(n, np.uint32)
            for first in range(0, n, width):
                part = slice(first, first + width)
                order = np.lexsort((places[part], keys[part]))
                keys[part], places[part] = keys[part][order], places[part][order]
            at = np.arange(n) + np.arange(n) // run
            shared, shared_places = np.zeros(at[-1] + 1, np.uint64), np.zeros(at[-1] + 1, np.uint32)
            shared[at], shared_places[at] = keys, places
            out, out_places = np.zeros(n, np.uint64), np.zeros(n, np.uint32)
            all_items = 4 * width if n == 2 * width else n
            merge(
                1, keys=shared, places=shared_places, width=width, all=all_items, merged=out,
                merged_places=out_places,
            )
            order = np.lexsort((places, keys))
            np.testing.assert_array_equal(out, keys[order])
            np.testing.assert_array_equal(out_places, places[order])
print("merged")
"""


@pytest.mark.parametrize("placed", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_merge_reads_nothing_past_its_runs(write, placed):
    compiler = [*shlex.split(os.environ.get("CXX", "g++")), "-print-file-name=libasan.so"]
    library = subprocess.run(compiler, capture_output=True, text=True).stdout.strip()
    if not os.path.isabs(library):
        pytest.skip(f"{compiler[0]} has no libasan.so")
    env = os.environ | {"MGRAPH_HOST_BUILD": "address", "LD_PRELOAD": library, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, write(MERGE), str(placed)]
    done = subprocess.run(
        command, env=env | {"ASAN_OPTIONS": "detect_leaks=0"}, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "merged\n", done.stderr
