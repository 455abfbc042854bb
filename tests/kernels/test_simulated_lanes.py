"""The build with 32-lane tiles ends the process where lanes diverge at a barrier; tiles of one lane cannot see it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

DIVERGENT = """
struct Divergent {
    static constexpr int lanes = 32;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Block block;
        for (i64 i : grid.items(tile, n))
            if (CONDITION) WAIT;
    }
};
"""
RUN = """
import sys
from mgraph.device import Device
from mgraph.kernels import load
load(Device("cpu"), sys.argv[1]).Divergent(4, n=4)
"""


@pytest.mark.parametrize(
    ("condition", "wait"),
    [
        ("tile.rank() == 0", "tile.sync()"),
        ("tile.rank() != 3", "tile.ballot(true)"),
        ("block.rank() < 32", "block.sync()"),
        ("tile.rank() / 4 != 2", "(Tile<4, true>{}.any(true))"),  # a whole tile, where those of the warp are in step
    ],
)
def test_divergence_aborts_where_tiles_are_32_lanes(write, condition, wait):
    path = write(DIVERGENT.replace("CONDITION", condition).replace("WAIT", wait))
    builds = {"lanes": -signal.SIGABRT} | ({"plain": 0} if "block" in condition else {})
    for build, ends in builds.items():
        env = os.environ | {"MGRAPH_HOST_BUILD": build}
        done = subprocess.run([sys.executable, "-c", RUN, path], env=env, capture_output=True, text=True, timeout=100)
        assert done.returncode == ends, done.stderr
        assert ("divergent lanes" in done.stderr) == (build == "lanes")
