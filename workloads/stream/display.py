"""Display of a run: a live line on a terminal, plain lines elsewhere, and a table at the end."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from workloads.results.record import Record

__all__ = ["Display", "closing_table", "updates_per_second"]

PLAIN_EVERY = 1.0  #: seconds between plain lines


class Display:
    """Progress of a stream: rate, epoch, edges and the last analytics.

    A context manager. On a terminal a live line, refreshed a few times per second; elsewhere at most one plain line per
    second.
    """

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self._last = ""
        self._printed = -PLAIN_EVERY
        columns = (BarColumn(20), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console)
        self._task = self._progress.add_task("building", total=total)
        self._live = Live(self._progress, console=console, refresh_per_second=8) if console.is_terminal else None

    def __enter__(self) -> Display:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def batch(self, line: dict[str, Any], rate: float) -> None:
        """Show a batch: its record line, and the rate so far in operations per second."""
        text = f"epoch {line['epoch']}  {line['edges']:,} edges  {rate:,.0f} updates/s"
        self._show(text, line["consumed"])

    def analytic(self, line: dict[str, Any]) -> None:
        """Show the last result of an algorithm, until the next."""
        self._last = f"{line['name']} {line['seconds'] * 1e3:,.1f} ms: {line['says']}"
        if not self._live:
            self.console.print(f"epoch {line['epoch']}  {self._last}", highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def _show(self, text: str, done: int) -> None:
        if self._live:
            self._progress.update(self._task, completed=done, description="  ".join(filter(None, [text, self._last])))
        elif time.monotonic() - self._printed >= PLAIN_EVERY:
            self._printed = time.monotonic()
            self.console.print(text, highlight=False, soft_wrap=True)


def updates_per_second(batches: list[dict[str, Any]]) -> float:
    """Return operations, expiries included, per second of updates; 0 before the first."""
    seconds = sum(line["seconds"] for line in batches)
    return sum(line["operations"] for line in batches) / seconds if seconds else 0.0


def closing_table(record: Record, title: str) -> Table:
    """Return the measurements as two columns."""
    table = Table("measure", "value", title=title, title_justify="left")
    table.columns[1].justify = "right"
    for line in record.of("build"):
        table.add_row("initial build", f"{line['operations']:,} operations in {line['seconds']:.3f} s")
    batches = record.of("batch")
    if batches:
        _add_batches(table, batches)
    for name in dict.fromkeys(line["name"] for line in record.of("analytic")):
        runs = [line for line in record.of("analytic") if line["name"] == name]
        times = np.array([line["seconds"] for line in runs]) * 1e3
        table.add_row(f"{name}, {len(runs)} runs", f"median {np.median(times):,.1f} ms, max {times.max():,.1f} ms")
        table.add_row(f"{name}, last", f"{runs[-1]['says']} (epoch {runs[-1]['epoch']})")
    return table


def _add_batches(table: Table, batches: list[dict[str, Any]]) -> None:
    times = np.array([line["seconds"] for line in batches]) * 1e3
    for name in ("operations", "inserted", "updated", "deleted", "missing"):
        table.add_row(name, f"{sum(line[name] for line in batches):,}")
    table.add_row("edges at the end", f"{batches[-1]['edges']:,} (epoch {batches[-1]['epoch']})")
    table.add_row("time in updates", f"{times.sum() / 1e3:.3f} s, {len(batches)} batches")
    table.add_row("a batch", f"median {np.median(times):,.1f} ms, max {times.max():,.1f} ms")
    table.add_row("updates/s", f"{updates_per_second(batches):,.0f}")
