"""create(): names and devices that are not there."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph.batch import EdgeBatch
from mgraph.device import Device, gpu_count
from mgraph.errors import CapacityError, DeviceError, InvalidOption
from mgraph.structures import create, names


def test_names_make_structures():
    assert {"gpma+", "csr"} <= set(names())
    for name in names():
        s = create(name, 3)
        assert (s.name, s.n_rows, s.n_vertices, s.num_edges, s.weighted) == (name, 3, 3, 0, False)
        assert s.device.kind == "cpu"


def test_a_device_may_be_given_whole():
    device = Device("cpu", threads=1)
    assert create(names()[0], 3, device=device).device is device
    with pytest.raises(InvalidOption, match="0 threads"):
        Device("cpu", threads=0)


def test_unknown_structure():
    with pytest.raises(InvalidOption, match=r"'btree'.*'csr'"):
        create("btree", 10)


def test_options_in_a_name():
    s = create("slabgraph:slab=32:limit=1.5", 10, load_factor=0.9)
    assert (s.words, s.limit, s.load_factor) == (8, 150, 90)
    assert not create("graphvine:compact=0", 10).compact
    assert create("hornet:spare=5e-1", 10).spare == 0.5
    for name, message in {
        "slabgraph:slabs=32": r"no option 'slabs'; its options are 'slab', 'load_factor', 'limit'",
        "csr:n_rows=3": "csr has no option 'n_rows'; it has none",
        "slabgraph:slab": "'' is no number",
        "slabgraph:slab=32:slab=64": "has the option 'slab' twice",
        "slabgraph:slab=x": "'x' is no number",
        "slabgraph:slab=48": "48 bytes",
        "slabgraph:slab=64.0": r"slab of slabgraph is 64\.0; a whole number",
        "graphvine:block=16.5": "a whole number",
        "graphvine:block=1e1": r"10\.0; a whole number",
        "hornet:spare=nan": "spare of nan",
        "gpma+:leaf_density=0.5": "gpma\\+ has no option 'leaf_density'; its options are 'leaf', 'fill'",
        ":slab=32": "structure '' is none of",
    }.items():
        with pytest.raises(InvalidOption, match=message):
            create(name, 10)
    with pytest.raises(InvalidOption, match=r"leaf of gpma\+ is 32\.0"):
        create("gpma+", 10, leaf=32.0)


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "cpu:1", ""])
def test_unknown_device(device):
    with pytest.raises(InvalidOption, match=f"device {device!r}"):
        create(names()[0], 10, device=device)


def test_gpu_where_there_is_none():
    with pytest.raises(DeviceError, match=f"{gpu_count()} can be used"):
        create(names()[0], 10, device=f"cuda:{gpu_count()}")


def test_nothing_is_reserved_on_a_cpu():
    Device("cpu").reserve(1 << 60)
    with pytest.raises(InvalidOption, match="-1 bytes"):
        Device("cpu").reserve(-1)


@pytest.mark.gpu
def test_reserved_memory_serves_what_grows_in_it():
    device = Device("cuda")
    pool = device.xp.get_default_memory_pool()
    pool.free_all_blocks()
    device.reserve(1 << 28)
    s = create("gpma+", 10_000, device=device)
    held = pool.total_bytes()
    assert held >= 1 << 28
    rng = np.random.default_rng(3)
    for _ in range(4):
        s.insert(EdgeBatch(*rng.integers(0, 10_000, (2, 200_000))))
    assert pool.total_bytes() == held
    with pytest.raises(CapacityError, match="GPU"):
        device.reserve(1 << 50)
