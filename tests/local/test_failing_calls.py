"""Two system calls that fail, on every kind of change: the store opens, with what was acknowledged and nothing refused.

A change, a snapshot and another change are made while the calls fail; then the graph is closed, and opened again.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from failing_calls import FailingCalls
from plain_graph import fresh_rng
from promise_records import note

from mgraph import DynamicGraph, EdgeBatch, MgraphError
from mgraph.local import coordinator
from mgraph.log import segments

pytestmark = pytest.mark.filterwarnings("ignore:.*vertices without edges could not be removed")

TIMED = {"keys": "int64", "times": True, "drop_isolated": True}
PLAIN = {"n_vertices": 20, "weighted": True}

Change = Callable[[DynamicGraph], Any]
State = tuple[int, int, list[Any]]


#: an error after which the store may have the change
IN_DOUBT = re.compile("whether the store has|GraphLost|WorkerLost")
FLIGHT = [EdgeBatch([vertex], [3]) for vertex in (11, 12, 13, 14)]


#: kinds of changes: the options of the graph, and the call; None for a pipeline of `FLIGHT`, which share a call
KINDS: dict[str, tuple[dict[str, Any], Change | None]] = {
    "insert": (PLAIN, lambda graph: graph.insert([7, 8], [8, 9], [2.0, 3.0])),
    "delete": (PLAIN, lambda graph: graph.delete([1], [2])),
    "update": (PLAIN, lambda graph: graph.update(EdgeBatch([1, 5], [2, 6], op=[-1, 1]))),
    "delete_vertices": (PLAIN, lambda graph: graph.delete_vertices([2])),
    "add_vertices": (PLAIN, lambda graph: graph.add_vertices(3)),
    "pipeline": (PLAIN, None),
    "keyed insert": (TIMED, lambda graph: graph.insert([70, 80], [80, 90], time=[5, 6])),
    "keyed delete": (TIMED, lambda graph: graph.delete([1], [2])),
    "remove_vertices": (TIMED, lambda graph: graph.delete_vertices([2])),
    "keys": (TIMED, lambda graph: graph.add_vertices([101, 102])),
    "expire": (TIMED, lambda graph: graph.expire(3)),
}


def insert(graph: DynamicGraph, options: dict[str, Any], src: list[int], dst: list[int], now: int) -> None:
    graph.insert(src, dst, **({"time": [now] * len(src)} if "times" in options else {}))


def state(graph: DynamicGraph) -> State:
    """The epoch, the number of vertices and the edges."""
    return graph.epoch, graph.num_vertices, sorted(graph.to_pandas().itertuples(index=False, name=None))


def sequence(
    monkeypatch: pytest.MonkeyPatch, folder: Path, kind: str, sync: str, failing: Collection[int], number: int
) -> list[str]:
    """Make the changes with calls that fail, open the store and compare; return the calls that were made."""
    options, change = KINDS[kind]
    with DynamicGraph(**options) as plain, DynamicGraph(store=folder, sync=sync, **options) as graph:
        for src, dst, now in (([1, 2, 3], [2, 3, 4], 1), ([4, 5, 6], [5, 6, 4], 4)):
            insert(plain, options, src, dst, now)
            insert(graph, options, src, dst, now)
        with monkeypatch.context() as patch:
            calls = FailingCalls(patch, folder, failing, number)
            states = fly(graph, plain) if change is None else made(graph, plain, change)
            with suppress(MgraphError):
                graph.snapshot()
            if len(states) == 1:
                states = made(graph, plain, lambda graph: insert(graph, options, [5], [1], 9))
            graph.close()
        with DynamicGraph.open(folder) as graph:
            opened = state(graph)
    assert opened in states, f"{kind}, {sync}: {failing} of {calls.names} failed: {opened} is none of {states}"
    return calls.names


def made(graph: DynamicGraph, plain: DynamicGraph, change: Change) -> list[State]:
    """Make a change of both graphs; return the states that the store may hold."""
    states = [state(plain)]
    try:
        change(graph)
    except (MgraphError, OSError) as error:
        if IN_DOUBT.search(f"{type(error).__name__}: {error}"):
            change(plain)
            states.append(state(plain))
        return states
    change(plain)
    return [state(plain)]


def fly(graph: DynamicGraph, plain: DynamicGraph) -> list[State]:
    """Make the changes of a pipeline, each of which is acknowledged on its own; none follows one that is refused."""
    pending: list[Any] = []
    with suppress(MgraphError), graph.pipeline() as flight:
        pending.extend(flight.update(batch) for batch in FLIGHT)
    errors = [report.exception() for report in pending]
    done = sum(error is None for error in errors)
    assert errors[:done] == [None] * done
    for batch in FLIGHT[:done]:
        plain.update(batch)
    states = [state(plain)]
    for batch, error in zip(FLIGHT[done:], errors[done:], strict=False):
        if not IN_DOUBT.search(f"{type(error).__name__}: {error}"):
            break
        plain.update(batch)
        states.append(state(plain))
    return states


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocate little at a time, so that changes allocate too. Batches of a pipeline wait for others."""
    monkeypatch.setattr(segments, "CHUNK", 1 << 9)
    monkeypatch.setattr(segments, "RESERVE", 1 << 8)
    monkeypatch.setattr(coordinator, "ALONE_SECONDS", float("inf"))
    monkeypatch.setattr(coordinator.Coordinator, "_sweep", lambda self: None)


def pairs_fail(monkeypatch: pytest.MonkeyPatch, folder: Path, kind: str, sync: str, count: int | None) -> int:
    """Fail `count` pairs of calls, or all; the first call of each of the `count` is one of the change."""
    rng = fresh_rng()
    names = sequence(monkeypatch, folder / "none", kind, sync, (), errno.ENOSPC)
    pairs = list(combinations(range(len(names)), 2))
    if count is not None:
        change = next(at for at, name in enumerate(names) if "snapshot" in name)
        pairs = [(first, int(rng.integers(first + 1, len(names)))) for first in rng.integers(0, change, count).tolist()]
    for number, pair in enumerate(pairs):
        error = errno.ENOSPC if rng.random() < 0.7 else errno.EIO
        sequence(monkeypatch, folder / f"{number}", kind, sync, pair, error)
        shutil.rmtree(folder / f"{number}")
    print(len(pairs), "pairs of", len(names), "calls")
    note("failing-calls", pairs_of_failing_calls=len(pairs))
    return len(pairs)


@pytest.mark.parametrize("sync", ["always", "background"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_pairs(tmp_path, monkeypatch, kind, sync):
    assert pairs_fail(monkeypatch, tmp_path, kind, sync, 1) == 1


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("sync", ["always", "background"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_pair(tmp_path, monkeypatch, kind, sync):
    assert pairs_fail(monkeypatch, tmp_path, kind, sync, None) > 500


@pytest.mark.parametrize("sync", ["always", "background"])
def test_no_segment_begins_behind_a_record_that_could_not_be_written(tmp_path, monkeypatch, sync):
    """The mark of a sync fails, and a snapshot is asked for: it would have said that all before it is on the disk."""
    names = sequence(monkeypatch, tmp_path / "none", "insert", sync, (), errno.ENOSPC)
    writes = [at for at, name in enumerate(names) if name.startswith("pwritev /term")]
    for number, at in enumerate(writes):
        sequence(monkeypatch, tmp_path / f"{number}", "insert", sync, [at], errno.ENOSPC)
