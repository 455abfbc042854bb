"""``python -m workloads wheel``: build a wheel with compiled kernels, so that the first use needs no compiler.

To find the programs, it creates graphs with the default options, weighted and not, and loads the kernels of all
algorithms for them on the CPU. A GPU needs the same programs and a few more; nvcc compiles them without a GPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from mgraph import DynamicGraph, Operations
from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import Algorithm, Shard
from mgraph.algorithms.primitives import compact_csr
from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.kernels import cuda, host, launch, libraries, load
from mgraph.kernels.source import Program, read_program
from mgraph.parallel_copy import FILE
from mgraph.structures import sample_sort

__all__ = ["HELP", "add_arguments", "programs", "run"]

HELP = "build a wheel that carries compiled kernels"
STRUCTURES = ("gpma+", "lpma", "slabgraph", "graphvine", "hornet", "csr", "gpma")
ROOT = Path(__file__).parents[1]
PLATFORM = "kernels/platform/cuda.cuh"
Files = tuple[tuple[str, dict[str, int]], ...]  #: files with their macros
SEVERAL_RANKS: Files = (("kernels/merge.cuh", {}), ("kernels/shared_values.cuh", {}))
HOSTS_ALONE = ("exchange/mailbox.h", "exchange/gateway.h")
GPUS_ALONE: Files = (
    ("structures/sums.cuh", {}),
    *(("kernels/sample_sort.cuh", macros) for macros in sample_sort.CONSTANTS),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("--out", type=Path, default=ROOT / "dist", help="the folder of the wheel")
    add("--structures", nargs="+", choices=STRUCTURES, default=STRUCTURES)
    add("--levels", nargs="+", choices=host.LEVELS, default=list(host.LEVELS), help="of CPUs")
    add("--gpus", nargs="*", choices=cuda.GPUS, help="architectures (default: all for which nvcc compiles)")


def run(options: argparse.Namespace) -> int:
    """Compile the programs, and build the wheel."""
    gpus = _chosen_gpus(options.gpus)
    shutil.rmtree(libraries.CARRIED, ignore_errors=True)
    # Find and compile the programs.
    on_cpus, on_gpus = programs(options.structures)
    wanted = [partial(host.carry, *one) for one in product(on_cpus, options.levels)]
    wanted += [partial(cuda.carry, *one) for one in product(on_gpus, gpus)]
    print(f"{len(on_cpus)} programs for {', '.join(options.levels)}", flush=True)
    print(f"{len(on_gpus)} programs for {', '.join(gpus) or 'no GPU'}", flush=True)
    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for i, target in enumerate(pool.map(lambda carry: carry(), wanted), 1):
                print(f"{i} of {len(wanted)}: {target.parent.name}/{target.name}", flush=True)
        for folder in sorted(libraries.CARRIED.iterdir()):
            sizes = [file.stat().st_size for file in folder.iterdir()]
            print(f"{folder.name}: {len(sizes)} programs, {sum(sizes) / 1e6:.1f} MB", flush=True)
        # Build the wheel.
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(options.out)]
        subprocess.run(command, cwd=ROOT, check=True)
    finally:
        shutil.rmtree(libraries.CARRIED, ignore_errors=True)  # this checkout keeps compiling for its own CPU and GPU
    return 0


def _chosen_gpus(named: Sequence[str] | None) -> Sequence[str]:
    """Return the architectures to compile for: the named ones, or all for which nvcc compiles."""
    supported = cuda.supported_gpus()
    wrong = [gpu for gpu in named or () if gpu not in supported]
    if wrong:
        raise InvalidOption(f"--gpus names {wrong[0]}; nvcc compiles here for {', '.join(supported) or 'nothing'}")
    if named is None and not supported:
        print("nvcc is not on the PATH, so the wheel has no programs for GPUs")
    return supported if named is None else named


def programs(structures: Sequence[str]) -> tuple[list[Program], list[Program]]:
    """Return the programs of graphs of these structures with the default options, and of all algorithms on them.

    First those of a CPU, then those of a GPU.
    """
    on_cpus, on_gpus, worth = dict[Program, None](), dict[Program, None](), compact_csr._worth
    for file in HOSTS_ALONE:
        on_cpus[read_program(file, host.host_platform(), (), None)] = None
    for file, macros in GPUS_ALONE:
        on_gpus[read_program(file, PLATFORM, tuple(sorted(macros.items())), None)] = None

    def noted(file: str, platform: str, *rest: Any) -> Program:
        program = read_program(file, platform, *rest)
        on_gpus[read_program(file, PLATFORM, *rest)] = None
        if compact_csr._worth is worth:  # only GPUs copy rows
            on_cpus[program] = None
        return program

    with patch.object(launch, "read_program", noted), patch.dict(ALGORITHMS, {EVERY.name: EVERY}):
        for file, macros in ((FILE, {}), *SEVERAL_RANKS):
            load(Device("cpu"), file, None, **macros)
        for graph in _graphs(structures):
            with graph:
                graph.run(EVERY.name)
    return list(on_cpus), list(on_gpus)


def _warm(shard: Shard) -> None:
    """Compile the launches of all algorithms on this shard, on its rows and on copies of them."""
    others = [algorithm for algorithm in ALGORITHMS.values() if algorithm is not EVERY]
    for algorithm in others:
        algorithm.warm(shard)
    # What a CPU has loaded for the copies is forgotten, so that graphs of a CSR load it again.
    copied = patch.object(compact_csr, "_worth", lambda shard, edges: not edges.contiguous_rows)
    with copied, patch.dict(launch._libraries):
        for algorithm in others:
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


def _graphs(structures: Sequence[str], device: str = "cpu") -> Iterator[DynamicGraph]:
    """Yield graphs of each kind, after changes and reads by each call with its own kernels."""
    shapes: tuple[dict[str, Any], ...] = ({}, {"reverse": True}, {"directed": False})
    kinds = product(structures, (False, True), shapes, (None, "int64"))
    for structure, weighted, ways, keys in kinds:
        graph = DynamicGraph(structure=structure, weighted=weighted, keys=keys, device=device, **ways)
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
