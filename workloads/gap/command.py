"""``python -m workloads gap``: the GAP benchmark's generated graphs and kernels, by its rules.

A trial is a call of `DynamicGraph`'s method in this process, from the call until the result lies on the device. Neither
the creation of the graph nor the first call of a kernel, which compiles, is timed. Results are verified outside of the
time.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mgraph import DynamicGraph
from mgraph.errors import InvalidOption
from workloads.arguments import add_device, add_record, check_least
from workloads.bench.harness import Bench, Mismatch, summary
from workloads.gap import gapbs
from workloads.gap.graphs import KINDS, GapGraph, generate, sources
from workloads.gap.kernels import KERNELS, Kernel
from workloads.gap.peers import PEERS, peers_of
from workloads.results.archive import provenance
from workloads.results.result_table import pivot

__all__ = ["HELP", "add_arguments", "means", "run"]

INSERTED = 1 << 25  #: edges per insert; gpma+ takes 200 bytes for each meanwhile
HELP = "run the six kernels of the GAP benchmark on its generated graphs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("--scale", type=int, default=18, metavar="S", help="2**S vertices; the benchmark has 27 (default: %(default)s)")
    add("--degree", type=int, default=16, metavar="K", help="K * 2**S edges are drawn (default: %(default)s)")
    add("--graph", default=",".join(KINDS), metavar="A,B", help="of kron and urand (default: %(default)s)")
    add("--kernel", default=",".join(k.name for k in KERNELS), metavar="A,B", help="which (default: %(default)s)")
    add("--trials", type=int, metavar="N", help="of each kernel at most (default: as the rules say, 64, 16 or 3)")
    add("--verify", type=int, default=1, metavar="N", help="trials of each kernel to verify (default: %(default)s)")
    add("--structure", default="gpma+", help="the graph's structure (default: %(default)s)")
    add("--ids", default="drawn", choices=("degree", "drawn"), help="internal ids: by degree, or as drawn")
    add_device(parser)
    add("--peer", default="", metavar="A,B", help=f"time these too: {', '.join(PEERS)}; one trial each")
    add("--gapbs", type=Path, metavar="DIR", help="time the programs of gapbs in this folder on the same graph, too")
    add_record(parser, "JSON lines")
    parser.set_defaults(threads=None)


def run(options: argparse.Namespace) -> int:
    """Run the kernels. Returns 0; raises `Mismatch` for a wrong result."""
    # Check the options.
    kinds, kernels = _chosen(options)
    if options.gapbs is not None:
        gapbs.check(options.gapbs, kernels)
    folder, options.gapbs = options.gapbs, options.gapbs is not None  # the record does not name the folder
    bench = Bench("gap", options)

    # Run the kernels on each graph: ours, then the peers'.
    for kind in kinds:
        graph = generate(kind, options.scale, options.degree, bench.device)
        bench.free()
        bench.say(f"{kind}: {graph.n_vertices:,} vertices, {len(graph):,} edges, {bench.device.kind}")
        for weighted in (False, True):
            matching = [kernel for kernel in kernels if kernel.weighted == weighted]
            if matching:
                _ours(bench, kind, graph, matching, weighted)
                _others(bench, kind, graph, matching, weighted, folder)
    _table(bench)
    bench.close()
    return 0


def _chosen(options: argparse.Namespace) -> tuple[list[str], list[Kernel]]:
    """Return the requested graphs and kernels, after checks of all options."""
    check_least(options, "trials")
    check_least(options, "verify", least=0)
    peers_of(options.peer)
    kinds = [name for name in options.graph.split(",") if name]
    for kind in kinds:
        if kind not in KINDS:
            raise InvalidOption(f"--graph names {kind!r}; there are {', '.join(KINDS)}")
    asked = [name for name in options.kernel.split(",") if name]
    for name in asked:
        if name not in [k.name for k in KERNELS]:
            raise InvalidOption(f"--kernel names {name!r}; there are {', '.join(k.name for k in KERNELS)}")
    return kinds, [kernel for kernel in KERNELS if kernel.name in asked]


def _trials(bench: Bench, kernel: Kernel) -> int:
    return min(kernel.trials, bench.options.trials or kernel.trials)


def _ours(bench: Bench, kind: str, graph: GapGraph, kernels: list[Kernel], weighted: bool) -> None:
    options = bench.options
    with DynamicGraph(
        n_vertices=graph.n_vertices,
        directed=False,
        weighted=weighted,
        structure=options.structure,
        order="degree" if options.ids == "degree" else None,
        device=bench.device.kind,
    ) as g:
        seconds, _ = bench.time(partial(_fill, g, graph, weighted))
        facts = {"edges": g.num_edges, "nbytes": g.nbytes, "seconds": round(seconds, 4)}
        bench.add("graph", graph=kind, weighted=weighted, **facts)
        for kernel in kernels:
            _time(bench, kind, graph, g, kernel)
    bench.free()


def _fill(g: DynamicGraph, graph: GapGraph, weighted: bool) -> None:
    for columns in graph.edges():
        for at in range(0, len(columns[0]), INSERTED):
            src, dst, weight = (column[at : at + INSERTED] for column in columns)
            g.insert(src, dst, weight if weighted else None)


def _time(bench: Bench, kind: str, graph: GapGraph, g: DynamicGraph, kernel: Kernel) -> None:
    """Time the trials of a kernel.

    Raises `Mismatch` if a verified one is wrong.
    """
    picked, seconds, verified = sources(graph), [], 0
    kernel.run(g, kernel.next_sources(sources(graph)))  # compiles
    # The warm-up has drawn its own sources: trials begin with the first.
    for trial in range(_trials(bench, kernel)):
        chosen = kernel.next_sources(picked)
        spent, result = bench.time(partial(kernel.run, g, chosen))
        seconds.append(spent)
        if trial < bench.options.verify:
            wrong = kernel.wrong(g, graph, chosen, result)
            if wrong:
                raise Mismatch(f"{kernel.name} on {kind} from {chosen}: {wrong}")
            verified += 1
        del result
    _add(bench, "mgraph", kind, kernel, seconds, verified=verified)


def _others(
    bench: Bench, kind: str, graph: GapGraph, kernels: list[Kernel], weighted: bool, folder: Path | None
) -> None:
    """Time the peers and gapbs."""
    # The peers run each kernel once.
    for name in peers_of(bench.options.peer):
        runs = PEERS[name](graph, weighted)
        for kernel in kernels:
            if kernel.name in runs:
                seconds, _ = bench.time(partial(runs[kernel.name], kernel.next_sources(sources(graph))))
                _add(bench, name, kind, kernel, [seconds])

    # gapbs reads the graph from a file.
    if folder is None:
        return
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{kind}.{'wsg' if weighted else 'sg'}"
        gapbs.write_serialized(graph, path, weighted)
        for kernel in kernels:
            times_ms = gapbs.milliseconds(folder, kernel, path, _trials(bench, kernel), bench.device.threads)
            _add(bench, "gapbs", kind, kernel, [ms / 1e3 for ms in times_ms])


def _add(bench: Bench, who: str, kind: str, kernel: Kernel, seconds: list[float], **more: Any) -> None:
    bench.add("kernel", who=who, graph=kind, kernel=kernel.name, **summary(seconds), **more)


def _table(bench: Bench) -> None:
    """Print a row per graph and kernel, with the mean of each runner, as gapbs reports it."""
    columns, rows = pivot(means(bench.record.lines))
    where = provenance(bench.record.lines[0])
    bench.table(f"GAP, scale {bench.options.scale}, mean ms of the trials; {where}", columns, rows)


def means(lines: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, Any]]:
    """Yield graph, kernel, runner and mean time in ms, and then the numbers of our trials and verified trials."""
    titles = {kernel.name: kernel.title for kernel in KERNELS}
    ran = [line for line in lines if line["kind"] == "kernel"]
    for line in ran:
        yield line["graph"], titles[line["kernel"]], line["who"], line["mean_ms"]
    for line in ran:
        for name, column in (("n", "trials"), ("verified", "verified")):
            if "verified" in line:
                yield line["graph"], titles[line["kernel"]], column, line[name]
