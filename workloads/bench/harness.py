"""Harness of the benchmarks: wall time between two synchronisations of the device, after a warm-up.

The lines of a run: "run" (parameters, versions, hardware, commit), "device" (driver, memory, copy bandwidth), the
benchmark's measurements, and "end". A run without "end" was cut short.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from mgraph.errors import InvalidOption, MgraphError
from workloads.arguments import device_of
from workloads.results.record import ROOT, Record, environment

__all__ = [
    "ARCHIVE",
    "Bench",
    "Mismatch",
    "archive_folder",
    "counts_of",
    "open_record",
    "short",
    "show_table",
    "summary",
    "three_digits",
]

ARCHIVE = ROOT / "benchmarks" / "results"
T = TypeVar("T")


class Mismatch(MgraphError, AssertionError):
    """A result differs from the oracle's, so the measurement is void."""


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    """Return median, 99th percentile, mean and extremes of times, in milliseconds."""
    ms = np.asarray(seconds, np.float64) * 1e3
    figures = {"p50_ms": np.median(ms), "p99_ms": np.percentile(ms, 99), "mean_ms": ms.mean(), "min_ms": ms.min()}
    return {"n": len(ms), **{name: round(float(v), 4) for name, v in {**figures, "max_ms": ms.max()}.items()}}


def counts_of(text: str, option: str) -> list[int]:
    """Return the whole numbers above 0 of a list such as "10000,1e6".

    Raises `InvalidOption` for others.
    """
    try:
        numbers = [float(word) for word in text.split(",") if word]
    except ValueError:
        numbers = []
    if not numbers or any(n < 1 or n != int(n) for n in numbers):
        raise InvalidOption(f"--{option} is {text!r}; a list of whole numbers above 0 is needed")
    return [int(n) for n in numbers]


def short(n: int) -> str:
    """Return a count in short form: 10k, 1M, 268.4M."""
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if n >= unit:
            return f"{round(n / unit, 1):g}{letter}"
    return str(n)


def three_digits(value: float) -> str:
    """Return a number with three digits, or all those before the point: 0.125, 12.5, 1,250."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def archive_folder(hardware: dict[str, Any]) -> Path:
    """Return the folder for results of this hardware, named for its GPUs, or for its CPU."""
    gpus = hardware["gpus"]
    name = f"{len(gpus)}x {gpus[0]}" if gpus else hardware["cpu"]
    return ARCHIVE / re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def open_record(name: str, options: argparse.Namespace) -> Record:
    """Open the record of a run.

    `--archive` chooses its folder by the hardware, `--out` by name.
    """
    chosen = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
    folder = archive_folder(environment()["hardware"]) if options.archive else options.out
    return Record(name, folder, chosen)


def show_table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table. Columns of numbers are right-justified."""
    table = Table(title=title, title_justify="left")
    for at, column in enumerate(columns):
        words = any(isinstance(row[at], str) for row in rows)
        table.add_column(column, justify="left" if words else "right", no_wrap=words)
    for row in rows:
        table.add_row(*(f"{cell:,.4g}" if isinstance(cell, float) else str(cell) for cell in row))
    console.print(table)


class Bench:
    """Run of a benchmark: its options, its device, a clock, and its record.

    Parameters
    ----------
    name : str
    options : argparse.Namespace
        With device, threads, out, archive and commit beside the benchmark's own.

    Attributes
    ----------
    device : Device
        A device as shards have it.
    record : Record
    """

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.options, self.console = options, Console()
        self.device = device_of(options.device, options.threads)
        self.device.use()
        self.xp = self.device.xp
        self.record = open_record(f"bench-{name}", options)
        self.record.add("device", **self._describe())

    def _describe(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"device": str(self.device), "threads": self.device.threads}
        facts["load"] = os.getloadavg()[0]  # other load on the machine
        if self.device.kind == "cuda":
            runtime = self.xp.cuda.runtime
            facts |= {"driver": runtime.driverGetVersion(), "cuda": runtime.runtimeGetVersion()}
            facts["memory_bytes"] = runtime.memGetInfo()[1]
        # Measure the copy bandwidth, read and written.
        n = 1 << (30 if self.device.kind == "cuda" else 26)
        seconds = self.copy_seconds(n)
        return {**facts, "copy_gb_per_s": round(2 * n / seconds / 1e9, 1)}  # read and written

    # ---- time --------------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait for all work of the device, on any stream."""
        if self.device.kind == "cuda":
            self.xp.cuda.runtime.deviceSynchronize()

    def time(self, call: Callable[[], T]) -> tuple[float, T]:
        """Return the seconds of `call` until the device is done, and its result."""
        self.synchronize()
        began = time.perf_counter()
        value = call()
        self.synchronize()
        return time.perf_counter() - began, value

    def times(self, call: Callable[[], Any], repeats: int, warm: int = 1) -> list[float]:
        """Return the seconds of `repeats` calls, after `warm` uncounted ones."""
        return [self.time(call)[0] for _ in range(warm + repeats)][warm:]

    def copy_seconds(self, nbytes: int) -> float:
        """Return the median seconds of copying `nbytes` on the device.

        Takes twice as much memory.
        """
        source, target = self.device.zeros(nbytes // 8 + 1, np.uint64), self.device.zeros(nbytes // 8 + 1, np.uint64)
        return float(np.median(self.times(lambda: self.xp.copyto(target, source), 5)))

    def pool_bytes(self) -> int:
        """Return the bytes of GPU memory in the pool, used or not; 0 on the CPU."""
        return int(self.xp.get_default_memory_pool().total_bytes()) if self.device.kind == "cuda" else 0

    def free(self) -> None:
        """Free the pool's unused memory, so that the next structure starts like this one."""
        if self.device.kind == "cuda":
            self.synchronize()
            self.xp.get_default_memory_pool().free_all_blocks()

    # ---- what comes of it --------------------------------------------------------------------------------------------

    def add(self, kind: str, **values: Any) -> dict[str, Any]:
        """Add a line to the record."""
        return self.record.add(kind, **values)

    def say(self, text: str) -> None:
        """Print a line on the terminal, at once."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table on the terminal."""
        show_table(self.console, title, columns, rows)

    def close(self) -> None:
        """End the record and print its path."""
        self.add("end")
        if self.record.path is not None:
            self.say(f"wrote {self.record.path}")
