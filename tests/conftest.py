"""What all tests share: GPU marks, the folder of real graphs, and the count of skipped GPU tests."""

from __future__ import annotations

import os
import signal
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def pytest_configure() -> None:
    """Take Ctrl-C, also where a shell started the tests in the background and so had it ignored: tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def gpus_needed(item: pytest.Item) -> int:
    """How many GPUs a test's marks ask for."""
    needed = 1 if item.get_closest_marker("gpu") else 0
    mark = item.get_closest_marker("multigpu")
    return max(needed, int(mark.args[0]) if mark and mark.args else 2) if mark else needed


@cache
def gpus_here() -> int:
    from mgraph.device import gpu_count

    return gpu_count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        needed = gpus_needed(item)
        if needed and gpus_here() < needed:
            item.add_marker(pytest.mark.skip(reason=f"needs {needed} GPU(s), {gpus_here()} here"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = sum("GPU(s)" in str(report.longrepr) for report in terminalreporter.getreports("skipped"))
    if skipped:
        terminalreporter.write_line(f"{skipped} GPU tests skipped: {gpus_here()} GPUs here", yellow=True)


def find_data_dir() -> Path | None:
    """The folder of real graphs: MGRAPH_DATA, or the checkout's sibling shared/data; None where neither is there."""
    named = os.environ.get("MGRAPH_DATA")
    folder = Path(named) if named else ROOT.parent / "shared" / "data"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real graphs (.npz); skips the test where it is absent."""
    folder = find_data_dir()
    if folder is None:
        pytest.skip("no real graphs here; MGRAPH_DATA names their folder")
    return folder
