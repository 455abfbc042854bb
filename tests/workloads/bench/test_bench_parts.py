"""The parts that the benchmarks are made of: edges, fillings, the hash of the edges, summaries."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
from bench_runs import keys_of, splitmix_finaliser

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.structures import create
from mgraph.worker.shard.fingerprint import edge_hash
from workloads.bench.harness import archive_folder, counts_of, short, summary
from workloads.bench.inputs import Edges, degree_order, filled
from workloads.inputs.generators import Generator


def test_the_hash_sees_one_edge_and_no_order():
    src, dst = np.array([0, 5, 5, 7], np.uint32), np.array([1, 0, 9, 7], np.uint32)
    one, two = (create(name, 10) for name in ("csr", "gpma+"))
    one.build(EdgeBatch(src, dst))
    two.build(EdgeBatch(src[::-1], dst[::-1]))
    assert edge_hash(one) == edge_hash(two)
    assert edge_hash(one) == sum(splitmix_finaliser(key) for key in keys_of(src, dst)) % 2**64
    two.delete(EdgeBatch([5], [9]))
    two.insert(EdgeBatch([9], [5]))
    assert edge_hash(one) != edge_hash(two)


def test_degree_order_puts_hubs_first():
    src, dst = np.array([3, 3, 3, 1], np.uint32), np.array([1, 2, 1, 3], np.uint32)
    ids = degree_order(src, dst, 4, np)
    assert (ids[3], ids[1], ids[2], ids[0]) == (0, 1, 2, 3)
    assert sorted(ids.tolist()) == [0, 1, 2, 3]


def test_filled_in_parts_and_mirrored():
    src, dst = (ids.astype(np.uint32) for ids in np.random.default_rng(1).integers(0, 30, (2, 100)))
    whole = filled(create("csr", 30), np.concatenate([src, dst]), np.concatenate([dst, src]))
    parts = filled(create("gpma+", 30), src, dst, parts=7, mirrored=True)
    assert edge_hash(whole) == edge_hash(parts)


def test_small_parts():
    assert counts_of("1,1e6", "x") == [1, 1_000_000]
    assert [short(n) for n in (7, 10_000, 1_500_000, 268_435_456, 4_000_000_000)] == [
        "7",
        "10k",
        "1.5M",
        "268.4M",
        "4G",
    ]
    assert summary([0.001, 0.003]) == {
        "n": 2, "p50_ms": 2, "p99_ms": pytest.approx(2.98), "mean_ms": 2, "min_ms": 1, "max_ms": 3,
    }  # fmt: skip
    assert archive_folder({"gpus": ["NVIDIA H200", "NVIDIA H200"], "cpu": "x"}).name == "2x-nvidia-h200"
    assert archive_folder({"gpus": [], "cpu": "AMD EPYC(tm) 9"}).name == "amd-epyc-tm-9"


def test_edges_are_the_generators():
    options = argparse.Namespace(scale=9, edge_factor=8, uniform=True, seed=4)
    quarter = (0.25, 0.25, 0.25, 0.25)
    found = Edges(options, Device("cpu")).between(5, 1005)
    for one, other in zip(found, Generator(9, 8, 4, quarter).edges(5, 1005), strict=True):
        np.testing.assert_array_equal(one, other)
