"""``python -m workloads wheel``: build a wheel with compiled CPU kernels, so that the first use needs no compiler.

To find the programs, it creates graphs with the default options, weighted and not, and loads the kernels of all
algorithms for them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from mgraph import DynamicGraph, Operations
from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import Algorithm, Shard
from mgraph.device import Device
from mgraph.kernels import host, launch, load
from mgraph.kernels.source import Program
from mgraph.parallel_copy import FILE

__all__ = ["HELP", "add_arguments", "programs", "run"]

HELP = "build a wheel that carries compiled CPU kernels"
STRUCTURES = ("gpma+", "lpma", "slabgraph", "graphvine", "hornet", "csr", "gpma")
ROOT = Path(__file__).parents[1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of the wheel")
    parser.add_argument("--structures", nargs="+", choices=STRUCTURES, default=STRUCTURES)
    parser.add_argument("--levels", nargs="+", choices=host.LEVELS, default=list(host.LEVELS))


def run(options: argparse.Namespace) -> int:
    """Compile the programs, and build the wheel."""
    shutil.rmtree(host.CARRIED, ignore_errors=True)
    # Find and compile the programs.
    needed = programs(options.structures)
    wanted = [(program, level) for program in needed for level in options.levels]
    print(f"{len(needed)} programs for {', '.join(options.levels)}", flush=True)
    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for i, target in enumerate(pool.map(lambda one: host.carry(*one), wanted), 1):
                print(f"{i} of {len(wanted)}: {target.parent.name}/{target.name}", flush=True)
        # Build the wheel.
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(options.out)]
        subprocess.run(command, cwd=ROOT, check=True)
    finally:
        shutil.rmtree(host.CARRIED, ignore_errors=True)  # this checkout keeps compiling for its own CPU
    return 0


def programs(structures: Sequence[str]) -> list[Program]:
    """Return the programs of graphs of these structures with the default options, and of all algorithms on them."""
    needed: dict[Program, None] = {}
    real = launch.compile_host

    def noted(program: Program) -> Any:
        needed[program] = None
        return real(program)

    with patch.object(launch, "compile_host", noted), patch.dict(ALGORITHMS, {EVERY.name: EVERY}):
        load(Device("cpu"), FILE)
        for graph in _graphs(structures):
            with graph:
                graph.run(EVERY.name)
    return list(needed)


def _warm(shard: Shard) -> None:
    """Compile the launches of all algorithms on this shard."""
    for algorithm in ALGORITHMS.values():
        if algorithm is not EVERY:
            algorithm.warm(shard)


#: an algorithm with the kernels of all others
EVERY = Algorithm(
    name="every",
    check=lambda graph: {},
    run=lambda shard: ({"nothing": shard.device.zeros(shard.hi - shard.lo, np.int32)}, {}),
    columns={"nothing": "value"},
    scalars=(),
    warm=_warm,
)


def _graphs(structures: Sequence[str]) -> Iterator[DynamicGraph]:
    """Yield graphs of each kind, after changes and reads by each call with its own kernels."""
    shapes: tuple[dict[str, Any], ...] = ({}, {"reverse": True}, {"directed": False})
    kinds = product(structures, (False, True), shapes, (None, "int64"))
    for structure, weighted, ways, keys in kinds:
        graph = DynamicGraph(structure=structure, weighted=weighted, keys=keys, device="cpu", **ways)
        src, dst = np.random.default_rng(0).integers(0, 200, (2, 500))
        # Changes.
        graph.insert(src, dst, src if weighted else None)
        graph.delete(src[:50], dst[:50])
        graph.execute(Operations(np.arange(3), src[:3], dst[:3], keys=keys))
        # Reads.
        for direction in ("out", "in") if ways else ("out",):
            graph.degrees(direction=direction)
            graph.neighbors(src[:5], direction)
        graph.has_edges(src, dst)
        graph.to_csr()
        graph.fingerprint()
        graph.subgraph(src[:5]).close()
        # Algorithms and results.
        for dtype, weight in product(("float32", "float64"), {False, weighted}):
            result = graph.pagerank(dtype=dtype, weight=weight)
            graph.hits(weight=weight and bool(ways))
            if weight:
                graph.sssp(src[60], dtype=dtype, predecessors=True)
        graph.bfs(src[60], predecessors=True)
        (result * 2 + result).sum()
        result.top(3), result[src[:5]]
        if weighted:
            graph.weights(src, dst)
        graph.delete_vertices(src[:5])
        yield graph
