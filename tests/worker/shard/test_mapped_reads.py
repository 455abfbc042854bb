"""Small reads through memory that host and device share give what reads of copies give."""

from __future__ import annotations

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.structures import create, names
from mgraph.worker.shard.mapped_reads import MOST, MappedReads

N = 60


@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("structure", names())
def test_mapped_reads_answer_as_the_structure_does(structure, kind):
    rng, device = fresh_rng(), Device.of(kind)
    edges, first = create(structure, N, device=device, weighted=True), 1000
    ends = rng.integers(0, N, (2, 300), np.uint32)
    edges.apply(EdgeBatch(*ends, rng.random(300, np.float32)))
    desk = MappedReads(device)
    for n in (1, 7, 1, MOST, 0, 7):  # the memory is used again
        src, dst = rng.integers(0, N, (2, n), np.uint32)
        asked, rows = src + np.uint32(first), device.asarray(src)
        for read, dtype, ids in (
            (edges.has_edges, np.bool_, [dst]),
            (edges.find_weights, np.float32, [dst]),
            (edges.degrees, np.uint32, []),
        ):
            found = desk.ask(read, dtype, first, asked, *ids)
            want = device.to_host(read(rows, *map(device.asarray, ids), checked=True))
            assert found.dtype == want.dtype == dtype
            np.testing.assert_array_equal(found, want)
            assert found.flags.owndata  # the next read does not change it
        found = desk.rows(edges, first, asked)
        want = edges.neighbors(rows, checked=True)
        assert (found is None) == (len(want.dst) > MOST)
        for name in found or ():
            column = device.to_host(getattr(want, name))
            assert found[name].dtype == column.dtype and found[name].flags.owndata
            np.testing.assert_array_equal(found[name], column)
        assert found is None or {*found} == {"offsets", "dst", "weight"}
