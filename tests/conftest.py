"""What all tests share: GPU marks, the choice among combinations of parameters, and the folder of real graphs."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
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


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs more GPUs than there are, and mark the combinations that bring no new value of a parameter."""
    alike = defaultdict(list)
    for item in items:
        needed = gpus_needed(item)
        if needed and gpus_here() < needed:
            item.add_marker(pytest.mark.skip(reason=f"needs {needed} GPU(s), {gpus_here()} here"))
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and not item.get_closest_marker("slow"):
            alike[item.nodeid.partition("[")[0], needed].append(item)
    for tests in alike.values():
        left, seen = {item: values_of(item) for item in tests}, set[tuple[str, str]]()
        while any(values - seen for values in left.values()):
            seen |= left.pop(max(left, key=lambda item: len(left[item] - seen)))
        for item in left:
            item.add_marker(pytest.mark.combination)


def values_of(item: pytest.Function) -> set[tuple[str, str]]:
    """The values of a test's parameters; those that one ``parametrize`` lists together are one value."""
    params, values = dict(item.callspec.params), set()
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
        values.add((",".join(names), repr([params.pop(name, None) for name in names])))
    return values | {(name, repr(value)) for name, value in params.items()}


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
