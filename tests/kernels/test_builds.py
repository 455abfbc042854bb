"""The host's builds compute the same, though a compiler makes more of casts and races by some flags than by others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from mgraph.kernels.source import ROOT

BUILDS = ("plain", "quick")
PUN = """
struct OVERLAY Weighted {
    u32 id;
    f32 weight;
};
struct Pun {  // the weights are written as words, then as members of structs, and read as words
    static constexpr int lanes = 1;
    i64 n;
    u32* words;
    u32* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            words[2 * i + 1] = 7;
            ((Weighted*)words)[i].weight = (f32)i;
            out[i] = words[2 * i + 1];
        }
    }
};
"""
RUN_PUN = """
import sys
import numpy as np
from mgraph.device import Device
from mgraph.kernels import load
words, out = np.zeros(200, np.uint32), np.zeros(100, np.uint32)
load(Device("cpu", threads=1), sys.argv[1]).Pun(100, n=100, words=words, out=out)
print(out.view(np.float32).tolist())
"""
RUN_STREAM = """
import json, sys
import numpy as np
from mgraph import DynamicGraph
structure, seed = sys.argv[1], int(sys.argv[2])
rng, steps = np.random.default_rng(seed), []
with DynamicGraph(n_vertices=500, structure=structure, weighted=True, device="cpu") as graph:
    for size in (3000, 40, 2000, 700):
        src, dst = rng.integers(0, 500, (2, size)) * rng.integers(0, 2, (2, size))  # vertex 0 has a high degree
        graph.insert(src, dst, rng.random(size, np.float32))
        gone = rng.integers(0, 500, (2, size // 2)) * rng.integers(0, 2, (2, size // 2))
        graph.delete(*gone)
        rows = graph.neighbors(range(500))
        src = np.repeat(np.arange(500), np.diff(rows.offsets))
        steps.append(sorted(zip(src.tolist(), rows.dst.tolist(), rows.weight.tolist(), strict=True)))
print(json.dumps(steps))
"""


def run(build: str, code: str, *words: str) -> str:
    environment = {**os.environ, "MGRAPH_HOST_BUILD": build, "LD_PRELOAD": ""}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=500, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("build", BUILDS)
def test_an_array_of_words_may_be_used_as_structs(write, build):
    assert json.loads(run(build, RUN_PUN, write(PUN))) == list(range(100))


def test_every_struct_that_is_laid_over_words_says_so():
    """Casts to a struct's pointer, but for the platform's own from `void*`, are to structs with OVERLAY."""
    text = "".join(file.read_text() for file in ROOT.rglob("*.cuh"))
    laid_over = set(re.findall(r"\((?:const )?([A-Z]\w*)(?:<\w+>)?\*\)", text))
    assert {"Quad", "Row", "Stretch", "Window", "Fours"} <= laid_over
    laid_over -= {"T", "Depth"}  # numbers: the words of messages, and depths, of one type in each program
    assert laid_over - set(re.findall(r"struct OVERLAY (?:alignas\(16\) )?(\w+)", text)) == set()


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("structure", ["slabgraph", "graphvine", "lpma"])  # those that keep structs in arrays
def test_the_builds_have_the_same_edges(structure):
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    first, *others = (json.loads(run(build, RUN_STREAM, structure, str(seed))) for build in BUILDS)
    for other in others:
        for k, (want, got) in enumerate(zip(first, other, strict=True)):
            assert got == want, f"step {k}"
