"""What tests/sanitize_gpu.sh runs under compute-sanitizer: this is its pytest plugin, and plants a bug for each tool.

The plugin runs tests in turns of their classes until MGRAPH_TEST_SECONDS are over, so that each structure has a share.
Every array is an allocation of its own: inside CuPy's pool, an access past an array's end would look right.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

PLANTED = """#pragma once
struct Planted {
    static constexpr int lanes = 256;
    i64 n;
    i64* out;
    DEVICE void operator()(Grid grid) const {
        SHARED(i64, shared, 256);
        Block block;
        for (i64 i : grid.items(block, n)) { BUG; }
    }
};
"""
BUGS = {
    "memcheck": "out[n * block.size() + block.rank()] = i",
    "racecheck": "shared[block.rank()] = i; out[i * block.size() + block.rank()] = shared[(block.rank() + 32) % 256]",
    # lanes that are not in the mask themselves; a barrier that the others never reach is none once they have left
    "synccheck": "out[i * block.size() + block.rank()] = i; if (block.rank() % 32 > 15) __syncwarp(0x0000ffffu)",
}


def own_allocations() -> None:
    """Turn CuPy's memory pool off, where there is CuPy."""
    try:
        import cupy
    except ImportError:
        return
    cupy.cuda.set_allocator(None)


def run_planted(tool: str) -> None:
    """Run a kernel with the bug that `tool` is there for."""
    import numpy as np

    from mgraph.device import Device
    from mgraph.kernels import load

    own_allocations()
    device = Device("cuda")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "planted.cuh"
        path.write_text(PLANTED.replace("BUG", BUGS[tool]))
        load(device, str(path)).Planted(4, n=4, out=device.zeros(4 * 256, np.int64))
        device.xp.cuda.runtime.deviceSynchronize()


def in_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """First each function once, one of each class in turn, then each with its second parameters, and so on."""
    times: Counter[str] = Counter()
    functions: dict[str, dict[str, int]] = {}
    places = []
    for at, item in enumerate(items):
        function = item.nodeid.split("[")[0]
        group, _, name = function.rpartition("::")
        known = functions.setdefault(group, {})
        places.append((times[function], known.setdefault(name, len(known)), at))
        times[function] += 1
    return [items[at] for _, _, at in sorted(places)]


END = time.monotonic() + float(os.environ.get("MGRAPH_TEST_SECONDS", "inf"))


def pytest_configure() -> None:
    own_allocations()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = in_turns(items)


def pytest_runtest_setup() -> None:
    if time.monotonic() > END:
        pytest.skip("the time is over")


if __name__ == "__main__":
    run_planted(sys.argv[1])
