"""Mixed streams on one structure, without a shard: against a replay one operation at a time."""

from __future__ import annotations

import numpy as np
import pytest
from edge_model import WEIGHTS, ordered
from plain_graph import fresh_rng
from stream_model import StreamModel, check_rows, random_stream

from mgraph import Operations
from mgraph.device import Device
from mgraph.structures import create, mixed_stream, names
from mgraph.structures.mixed_stream import MixedStream, sort_stream
from mgraph.structures.sort import make_keys

VARIANTS = [
    *names(),
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("gpma+:leaf=8", "graphvine:block=4", "graphvine:directory=0:compact=0", "slabgraph:slab=32")
    ),
]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch) -> Device:
    """Tiles count few operations each, so that small streams are cut too; new memory holds what was there before."""
    monkeypatch.setitem(mixed_stream.CHUNK, request.param, 70)
    real = Device.empty

    def empty(device, n, dtype):
        array = real(device, n, dtype)
        array.view(np.uint8).fill(0xA5)
        return array

    monkeypatch.setattr(Device, "empty", empty)
    return Device.of(request.param)


@pytest.mark.parametrize("weighted", WEIGHTS)
@pytest.mark.parametrize("name", VARIANTS)
def test_streams_against_a_replay(name, weighted, device):
    """Rows of one edge and of thousands, with many updates of one edge; the last stream leaves few edges."""
    rng, n = fresh_rng(), 300
    s, model = create(name, n, device=device, weighted=weighted), StreamModel(weighted=weighted)
    for size, skew in ((0, 1), (1, 1), (2000, 2), (3000, 6), (500, 1)):
        kinds, src, dst, weight = random_stream(rng, n, size, model, False, skew)
        if size == 500:
            kinds, src, dst = ["delete"] * len(model.edges), *np.array(list(model.edges)).T
            weight = None
        ops = Operations(kinds, src, dst, weight)
        on = [None if c is None else device.asarray(c) for c in (ops.kind, ops.src, ops.dst, ops.weight)]
        if size % 2000:
            largest = device.zeros(2, np.uint64)
            run = sort_stream(device, weight=on[3], src=on[1], dst=on[2], largest=largest)
            separated = MixedStream(device, run, on[0], [*ops.counts.values(), 0], largest)
        else:  # as if it did not know how many operations of each kind there are
            separated = MixedStream(device, sort_stream(device, make_keys(device, *on[1:3]), weight=on[3]), on[0])
        plan = s.prepare(separated.updates)
        answers = separated.answer(s, plan.outcome).answers()
        counts = s.commit(plan)
        if size % 2000:
            assert separated.largest_ids() == (ops.src.max(), ops.dst.max())
        expected = model.replay(kinds, src, dst, weight)
        assert [counts.inserted, counts.updated, counts.deleted, counts.missing] == expected["counts"]
        assert answers.has_edge.tolist() == expected["has_edge"]
        assert answers.degree.tolist() == expected["degree"]
        np.testing.assert_array_equal(answers.weight, np.array(expected["weight"], np.float32))
        check_rows(answers.neighbors, expected["neighbors"], weighted)
        s.check_invariants()
        offsets, found, weights = ordered(s.to_csr())
        edges = sorted(model.edges.items())
        assert (np.repeat(np.arange(n), np.diff(offsets)).tolist(), found.tolist()) == (
            [u for (u, _), _ in edges],
            [v for (_, v), _ in edges],
        )
        assert weights is None or weights.tolist() == [w for _, w in edges]
        pairs = np.concatenate(
            [rng.integers(0, n, (500, 2)), np.array(list(model.edges), np.int64).reshape(-1, 2)[:500]]
        )
        wanted = [model.edges.get((u, v), np.nan) for u, v in pairs.tolist()]
        np.testing.assert_array_equal(Device.to_host(s.find_weights(*pairs.T)), np.array(wanted, np.float32))
    assert s.num_edges == 0
