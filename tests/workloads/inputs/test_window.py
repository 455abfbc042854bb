"""The sliding window against a model that keeps a list."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgraph.errors import InvalidOption
from workloads.inputs.edges import EdgeStream
from workloads.inputs.window import Batches


def make(operations, n=4, **options):
    src, dst, op = (np.array(column, np.int64) for column in zip(*operations, strict=True))
    return EdgeStream(src.astype(np.uint32), dst.astype(np.uint32), n, op=op.astype(np.int8), **options)


def model(stream, window):
    """The edges after each operation: live while an insertion in the window is, with no later deletion."""
    live, states = deque(), []
    ops = [1] * len(stream) if stream.op is None else stream.op.tolist()
    for u, v, op in zip(stream.src.tolist(), stream.dst.tolist(), ops, strict=True):
        edge = (u, v) if stream.directed else (min(u, v), max(u, v))
        if op > 0:
            live.append(edge)
            if len(live) > window:
                live.popleft()
        else:  # places in the window stay taken, so that it spans the same stretch of the stream
            live = deque(None if other == edge else other for other in live)
        states.append({edge for edge in live if edge})
    return states


def play(edges, batch, directed=True):
    """A graph that takes one operation at a time."""
    deleted_twice = 0
    for u, v, op in zip(batch.src.tolist(), batch.dst.tolist(), batch.op.tolist(), strict=True):
        edge = (u, v) if directed else (min(u, v), max(u, v))
        if op > 0:
            edges.add(edge)
        else:
            deleted_twice += edge not in edges
            edges.discard(edge)
    return deleted_twice


operations = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([1, 1, 1, -1])), min_size=1)


@settings(max_examples=100, deadline=None)
@given(operations, st.integers(1, 12), st.integers(1, 9), st.booleans())
def test_window_is_the_model(ops, window, size, directed):
    stream = make(ops, directed=directed)
    states = model(stream, window)
    edges, at = set(), 0
    for batch in Batches(stream, window).of(size):
        play(edges, batch, directed)
        at = min(at + size, len(stream))
        assert edges == states[at - 1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.just(1)), min_size=1), st.integers(1, 9))
def test_no_expiry_is_of_an_edge_that_is_gone(ops, window):
    stream = make(ops)
    assert sum(play(edges := set(), batch) for batch in Batches(stream, window).of(len(stream))) == 0
    assert edges == model(stream, window)[-1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("window", [1, 7, 100, 999, 1000, 5000])
def test_random_streams(seed, window):
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    stream = EdgeStream(*rng.integers(0, 12, (2, 1000)).astype(np.uint32), 12)
    states, edges, at = model(stream, window), set(), 0
    for size in (300, 1, 99, 600):
        play(edges, Batches(stream, window).between(at, at + size))
        at += size
        assert edges == states[at - 1]


def test_arrival_and_expiry_share_a_batch():
    stream = EdgeStream(np.uint32([0, 1, 2, 3]), np.uint32([9, 9, 9, 9]), 10, weight=np.float32([1, 2, 3, 4]))
    batch = Batches(stream, window=2).between(2, 4)
    assert batch.src.tolist() == [0, 2, 1, 3]  # each expiry right before the arrival that causes it
    assert batch.op.tolist() == [-1, 1, -1, 1]
    assert batch.weight.tolist() == [0, 3, 0, 4]


def test_an_edge_that_arrives_again_lives_on():
    stream = EdgeStream(np.uint32([5, 5, 1, 2]), np.uint32([6, 6, 1, 2]), 7)
    batches = [(b.src.tolist(), b.op.tolist()) for b in Batches(stream, window=2).of(1)]
    assert batches == [([5], [1]), ([5], [1]), ([1], [1]), ([5, 2], [-1, 1])]


def test_without_a_window_batches_are_slices():
    stream = make([(0, 1, 1), (1, 2, -1), (2, 3, 1)])
    first, second = Batches(stream).of(2)
    assert (first.src.tolist(), first.op.tolist(), len(second)) == ([0, 1], [1, -1], 1)
    assert np.shares_memory(first.src, stream.src)
    assert [len(b) for b in Batches(stream).of(2, start=1)] == [2]


@pytest.mark.parametrize("window", [0, -1])
def test_bad_window(window):
    with pytest.raises(InvalidOption, match=f"window is {window}"):
        Batches(make([(0, 1, 1)]), window)


def test_bad_batch():
    with pytest.raises(InvalidOption, match="batch is 0"):
        list(Batches(make([(0, 1, 1)])).of(0))
