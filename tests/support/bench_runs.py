"""Benchmarks of a tiny graph, run and read."""

from __future__ import annotations

import json

import numpy as np

from workloads.__main__ import main
from workloads.inputs.generators import Generator

SMALL = ["--device", "cpu", "--threads", "1", "--scale", "9", "--edge-factor", "8", "--seed", "3"]


def bench(tmp_path, *options):
    """Run a benchmark; its lines, after a look at the first and the last."""
    assert main(["bench", options[0], *SMALL, *options[1:], "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("bench-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    first, device = lines[:2]
    assert (first["kind"], first["name"], lines[-1]["kind"]) == ("run", f"bench-{options[0]}", "end")
    assert first["parameters"]["seed"] == 3 if "seed" in first["parameters"] else options[0] == "exchange"
    assert {"versions", "hardware", "commit", "time"} <= first.keys()
    assert device["device"] == "cpu"
    assert device["copy_gb_per_s"] > 0
    return lines


def of(lines, kind, **values):
    return [line for line in lines if line["kind"] == kind and values.items() <= line.items()]


def drawn(start, stop):
    """Edges of the tiny graph by number, as the benchmarks draw them."""
    return Generator(9, 8, seed=3).edges(start, stop)


def keys_of(src, dst):
    return set((src.astype(np.uint64) << np.uint64(32) | dst).tolist())


def splitmix_finaliser(key):
    """The hash of one edge, in Python's integers."""
    key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
    return key ^ key >> 31
