"""``bench memory``: bytes per edge after the build and while the graph grows, and the peak during a batch.

The peak of a batch is the structure, its plan and every temporary of prepare and commit, relative to the structure
before. On a GPU it comes from the memory pool's allocations and the mapped memory of growing arrays. On the CPU it is
the larger of the structure with its plan's arrays and the structure afterwards, without temporaries.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.growing import mapped_bytes
from mgraph.kernels import Struct
from mgraph.structures import Plan, Structure, create
from mgraph.structures.run import sort_batch
from workloads.arguments import check_least
from workloads.bench.harness import Bench
from workloads.bench.inputs import Edges, add_graph_arguments, chosen_structures

__all__ = ["HELP", "add_arguments", "held_bytes", "measure"]

HELP = "bytes per edge after the build and over growth, and the peak while growing"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add = parser.add_argument
    add_graph_arguments(parser)
    add("--resident", type=int, metavar="N", help="edges drawn for the build (default: all)")
    add("--batch", type=int, default=1_000_000, metavar="N", help="edges per batch (default: %(default)s)")
    add("--growth", type=float, default=2.0, metavar="X", help="grow to X times the edges built (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Build each structure, grow it by the same batches, and record its memory."""
    # Grow each structure.
    options = bench.options
    check_least(options, "batch", "growth")
    edges, rows = Edges(options, bench.device), []
    for name in chosen_structures(options):
        structure = create(name, edges.n_vertices, device=bench.device)
        lines = _grow(bench, name, structure, edges)
        del structure
        bench.free()
        rows.append(_summarise(bench, name, lines))

    # Print the table.
    columns = ["structure", "bytes/edge built", "least", "mean", "most", "peak / before: build", "mean", "most"]
    columns.append("peak / after: most")
    bench.table(f"memory over growth by {options.growth:g}", columns, rows)


def _grow(bench: Bench, name: str, structure: Structure, edges: Edges) -> list[dict[str, Any]]:
    options = bench.options
    resident = options.resident or edges.n_edges
    lines = [_step(bench, name, structure, edges, 0, resident)]
    goal, at = options.growth * structure.num_edges, resident
    limit = resident + 100 * int(options.growth * resident)  # a small graph may be full before the goal
    while structure.num_edges < goal and at < limit:
        lines.append(_step(bench, name, structure, edges, at, at + options.batch))
        at += options.batch
    return lines


def _step(bench: Bench, name: str, structure: Structure, edges: Edges, start: int, stop: int) -> dict[str, Any]:
    # Sort the batch, then watch the memory of prepare and commit.
    batch = EdgeBatch(*edges.between(start, stop))
    run = sort_batch(bench.device, batch, structure.n_rows, structure.n_vertices)
    del batch
    before = structure.nbytes
    with _high_water(bench) as high:
        plan = structure.prepare(run)
        planned = held_bytes(plan, structure)
        structure.commit(plan)
        bench.synchronize()
        del plan

    # Without a high-water mark (on the CPU), add up the arrays.
    peak = before + high[0] if high else max(before + planned, structure.nbytes)
    return bench.add(
        "memory",
        structure=name,
        drawn=stop - start,
        edges=structure.num_edges,
        nbytes=structure.nbytes,
        bytes_per_edge=round(structure.nbytes / max(structure.num_edges, 1), 4),
        peak_bytes=peak,
        peak_ratio=round(peak / max(before, 1), 4),
        peak_after_ratio=round(peak / max(structure.nbytes, 1), 4),
    )


@contextmanager
def _high_water(bench: Bench) -> Iterator[list[int]]:
    """Yield the peak of the GPU's allocated bytes in the block, over those at its beginning; empty on the CPU."""
    if bench.device.kind == "cpu":
        yield []
        return
    pool = bench.xp.get_default_memory_pool()
    begin, high = pool.used_bytes() + mapped_bytes(), [0]

    def look() -> None:
        high[0] = max(high[0], pool.used_bytes() + mapped_bytes() - begin)

    class Watch(bench.xp.cuda.MemoryHook):  # type: ignore[name-defined]
        name = "high water"

        def malloc_postprocess(self, **_: Any) -> None:
            look()

    with Watch():
        yield high
    look()


def held_bytes(plan: Plan, structure: Structure) -> int:
    """Return the bytes of a plan's arrays, without those of its run and of the structure."""
    own, planned = dict(_memory(vars(structure))), dict(_memory([plan.outcome, plan.work]))
    run = dict(_memory(plan.run))
    return sum(n for at, n in planned.items() if at not in own and at not in run)


def _memory(value: Any) -> Iterator[tuple[int, int]]:
    """Yield address and length of every allocation under the arrays in `value`.

    Views count as their base.
    """
    # An array: its base's allocation.
    if hasattr(value, "nbytes") and hasattr(value, "dtype"):
        while isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):
            value = value.base
        if isinstance(value, np.ndarray):
            yield value.__array_interface__["data"][0], value.nbytes
        else:
            memory = value.data.mem
            yield memory.ptr, memory.size
    elif isinstance(value, Struct):
        yield from _memory(value.values)
    elif isinstance(value, dict):
        yield from _memory(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _memory(item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _memory([getattr(value, field.name) for field in fields(value)])


def _summarise(bench: Bench, name: str, lines: list[dict[str, Any]]) -> list[Any]:
    per_edge, peaks = ([line[key] for line in lines] for key in ("bytes_per_edge", "peak_ratio"))
    # The build's peak is relative to the structure built: before it, the structure is empty.
    build = round(lines[0]["peak_bytes"] / max(lines[0]["nbytes"], 1), 4)
    growing = peaks[1:] or [0.0]
    figures = {
        "built": per_edge[0],
        "least": min(per_edge),
        "mean": round(float(np.mean(per_edge)), 4),
        "most": max(per_edge),
        "build_peak_ratio": build,
        "mean_peak_ratio": round(float(np.mean(growing)), 4),
        "most_peak_ratio": max(growing),
        "most_peak_after_ratio": max((line["peak_after_ratio"] for line in lines[1:]), default=0.0),
    }
    bench.add("growth", structure=name, batches=len(lines) - 1, edges=lines[-1]["edges"], **figures)
    return [name, *figures.values()]
