"""``python -m workloads bench NAME``: a module per benchmark, with HELP, add_arguments(parser) and measure(bench)."""

from __future__ import annotations

import argparse
import importlib

from workloads.arguments import add_kernel_device, add_record
from workloads.bench.harness import Bench

__all__ = ["HELP", "add_arguments", "run"]

HELP = "measure updates, algorithms, memory or the exchange, and check the results"
BENCHMARKS = (
    "updates",
    "execute",
    "bfs",
    "pagerank",
    "sssp",
    "algorithms",
    "communities",
    "live",
    "copy",
    "memory",
    "calls",
    "keys",
    "store",
    "handover",
    "exchange",
    "networkx",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare a subcommand for each benchmark."""
    names = parser.add_subparsers(dest="bench", required=True, metavar="BENCHMARK")
    for name in BENCHMARKS:
        module = importlib.import_module(f"workloads.bench.{name}")
        benchmark = names.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(benchmark)
        add_kernel_device(benchmark)
        add_record(benchmark, "JSON lines")


def run(options: argparse.Namespace) -> int:
    """Run a benchmark. Returns 0; raises `Mismatch` for a wrong result."""
    module = importlib.import_module(f"workloads.bench.{options.bench}")
    bench = Bench(options.bench, options)
    module.measure(bench)
    bench.close()
    return 0
