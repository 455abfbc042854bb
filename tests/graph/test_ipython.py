"""Graphs in IPython, which keeps the last error with its frames, and what cells gave: neither keeps graphs for ever."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from fakes import wait_for
from graph_clusters import addresses, assert_clean, sessions

from mgraph import DynamicGraph

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


@pytest.fixture
def shell(client, tmp_path, monkeypatch) -> Iterator[InteractiveShell]:
    """IPython, where `make()` makes a graph on one worker; garbage is collected only where somebody says so."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config, xmode="Minimal")
    shell.user_ns["make"] = partial(DynamicGraph, client, 10, workers=addresses(client)[:1])
    gc.collect()
    gc.disable()
    try:
        yield shell
    finally:
        gc.enable()
        shell.reset()
        shell.InteractiveTB.tb = sys.last_exc = sys.last_value = sys.last_traceback = None
        shell.restore_sys_module_state()
        gc.collect()
        assert_clean(client)


def run(shell: InteractiveShell, cell: str) -> BaseException | None:
    """Run a cell; what it raised."""
    return shell.run_cell(cell, store_history=True).error_in_exec


def results(dask_worker: Any) -> int:
    """How many results lie on a worker; runs there."""
    sessions = dask_worker.plugins["mgraph"].table.sessions.values()
    return sum(len(session.thread._servant.shard.results) for session in sessions)


CELLS = {  # by what raises
    "a call": "g = make()\ng.insert([0], [10])",
    "a worker": "g = make()\ng.ingest(lambda rank, size, step: 1 / (1 - rank))",
    "a function": "def work():\n    g = make()\n    found = g.bfs(0)\n    found.colour\nwork()",
}


@pytest.mark.parametrize(
    "cell",
    [pytest.param(cell, id=name, marks=() if name == "a call" else pytest.mark.slow) for name, cell in CELLS.items()],
)
def test_a_cell_that_makes_a_graph_and_raises_run_ten_times_leaves_two_at_most(shell, client, cell):
    for _ in range(10):
        assert run(shell, cell) is not None
    assert wait_for(lambda: max(sessions(client)) <= 2, 2), max(sessions(client))
    assert max(sessions(client)) >= 1  # that of the last error: IPython keeps it


def test_what_cells_gave_is_freed_by_close(shell, client):
    run(shell, "g = make()")
    for _ in range(3):
        run(shell, "g.bfs(0)")
    gc.collect()
    assert sum(client.run(results).values()) == 3
    run(shell, "first, *others = Out.values()\nfirst.close()\ng.degrees();")
    assert sum(client.run(results).values()) == 2
    run(shell, "g.close()")
    assert_clean(client)
    assert len(shell.user_ns["Out"]) == 3  # it has them still


def test_a_graph_that_a_cell_gave_is_freed_by_close(shell, client):
    run(shell, "make()")
    run(shell, "_.insert([0], [1])")
    gc.collect()
    assert max(sessions(client)) == 1  # Out has it
    assert run(shell, "next(iter(Out.values())).close()") is None
    assert_clean(client)
