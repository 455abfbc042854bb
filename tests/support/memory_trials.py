"""Calls that may have no room on workers of little memory, one after another, and what became of each."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from dask import delayed
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD, quick_start
from patience import patience

from mgraph import CapacityError, DynamicGraph, EdgeBatch, MgraphError

__all__ = ["KINDS", "STEPS", "Outcome", "Trial", "limited", "run", "summary", "table"]

N = 100_000  #: vertices
SEED_EDGES = 200_000  #: in the graph before the call
STEPS = 3  #: parts of a source, each of a third of the edges


@dataclass(frozen=True)
class Trial:
    """One call: `kind` names it, `edges` says how many operations, or edges of the graph, or vertices it is about."""

    kind: str
    edges: int
    structure: str = "gpma+"
    weighted: bool = False
    reverse: bool = False
    ops: bool = False
    directed: bool = True
    parts: int = 2 * STEPS  #: of a Dask collection

    def __str__(self) -> str:
        kept = [name for name in ("weighted", "reverse", "ops") if getattr(self, name)]
        return " ".join([self.kind, self.structure, *kept, *([] if self.directed else ["undirected"])])


@dataclass
class Outcome:
    """What became of a trial."""

    trial: Trial
    limit: str
    outcome: str = ""
    text: str = ""
    peak: list[int] = field(default_factory=list)  #: bytes, one a worker
    wrong: list[str] = field(default_factory=list)  #: what should not be
    restarted: int = 0  #: workers

    def row(self) -> str:
        """A line of `table`."""
        peak = "/".join(str(p >> 20) for p in self.peak)
        return f"{self.limit:>8} {self.trial!s:<52} {self.trial.edges:>11,} {self.outcome:<14} {peak:>9}  " + (
            "; ".join(self.wrong) or self.text[:150]
        )


def table(outcomes: list[Outcome]) -> str:
    """Limit, trial, operations, outcome, the workers' peaks in MiB, and what is wrong."""
    return "\n".join(outcome.row() for outcome in outcomes)


def summary(outcomes: list[Outcome]) -> str:
    """A table of trials by structure, limit and kind: how many, refused, done, with the graph as it should be, and
    how many workers were restarted.
    """
    rows: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault((outcome.trial.structure, outcome.limit, outcome.trial.kind), []).append(outcome)
    lines = ["| structure | limit | kind | trials | CapacityError | done | graph whole | restarts |", "|---" * 8 + "|"]
    for names, found in rows.items():
        refused, done = (sum(one.outcome == what for one in found) for what in ("CapacityError", "done"))
        whole, restarts = sum(not one.wrong for one in found), sum(one.restarted for one in found)
        lines.append(f"| {' | '.join(map(str, (*names, len(found), refused, done, whole, restarts)))} |")
    return "\n".join(lines)


@contextmanager
def limited(limit: str) -> Iterator[Client]:
    """Two worker processes, each of which its nanny kills past `limit`."""
    with (
        quick_start(),
        LocalCluster(n_workers=2, threads_per_worker=1, **NO_DASHBOARD, memory_limit=limit) as cluster,
        Client(cluster) as client,
    ):
        yield client


def batch_of(trial: Trial, n: int, seed: int) -> EdgeBatch:
    """`n` random operations."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, N, (2, n), dtype=np.uint32)
    weight = rng.random(n, np.float32) if trial.weighted else None
    op = np.where(rng.integers(0, 4, n, dtype=np.int8) > 0, np.int8(1), np.int8(-1)) if trial.ops else None
    return EdgeBatch(src, dst, weight, op)


def _columns(batch: EdgeBatch) -> dict[str, np.ndarray]:
    return {name: getattr(batch, name) for name in ("src", "dst", "weight", "op") if getattr(batch, name) is not None}


def _update(graph: DynamicGraph, trial: Trial) -> None:
    graph.update(batch_of(trial, trial.edges, 1))


def _pipeline(graph: DynamicGraph, trial: Trial) -> None:
    with graph.pipeline() as pipeline:
        for seed in range(STEPS):
            pipeline.update(batch_of(trial, trial.edges // STEPS, seed))


def _function(graph: DynamicGraph, trial: Trial) -> None:
    def part(rank: int, size: int, step: int) -> dict[str, Any] | None:
        n = trial.edges // (size * STEPS)
        rng = np.random.default_rng(rank * 100 + step)
        src, dst = rng.integers(0, N, (2, n), dtype=np.uint32)
        given: dict[str, Any] = {"src": src, "dst": dst}
        if trial.weighted:
            given["weight"] = rng.random(n, np.float32)
        if trial.ops:
            given["op"] = np.where(rng.integers(0, 4, n, dtype=np.int8) > 0, np.int8(1), np.int8(-1))
        return given if step < STEPS else None

    graph.ingest(part)


def _files(graph: DynamicGraph, trial: Trial) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"{i}.npz") for i in range(2 * STEPS)]
        for i, path in enumerate(paths):
            columns = _columns(batch_of(trial, trial.edges // len(paths), i))
            np.savez(path, **{k: c.astype(np.int64) if c.dtype == np.uint32 else c for k, c in columns.items()})
        graph.ingest(paths)


def _dask(graph: DynamicGraph, trial: Trial) -> None:
    parts = [delayed(_made)(trial, trial.edges // trial.parts, i) for i in range(trial.parts)]
    graph.ingest(parts)


def _made(trial: Trial, n: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    given: dict[str, Any] = {"src": rng.integers(0, N, n), "dst": rng.integers(0, N, n)}
    if trial.weighted:
        given["weight"] = rng.random(n)
    if trial.ops:
        given["op"] = np.where(rng.integers(0, 4, n, dtype=np.int8) > 0, np.int8(1), np.int8(-1))
    return given


def _grown(graph: DynamicGraph, trial: Trial) -> None:
    """Grow the graph in small batches, as far as there is room."""
    done, step, seed = graph.num_edges, 250_000, 100
    while done < trial.edges:
        seed += 1
        try:
            graph.update(batch_of(trial, step, seed))
        except CapacityError:
            return
        done += step


def _reads(graph: DynamicGraph, trial: Trial) -> None:
    graph.to_csr()
    graph.degrees()
    graph.neighbors(np.arange(N // 2))
    graph.bfs(0).to_numpy()
    graph.pagerank(max_iter=2).to_numpy()


#: what is done before the call that is tried, and the call
KINDS: dict[str, tuple[Callable[..., Any] | None, Callable[..., Any]]] = {
    "update": (None, _update),
    "pipeline": (None, _pipeline),
    "function": (None, _function),
    "files": (None, _files),
    "dask": (None, _dask),
    "reorder": (_grown, lambda graph, trial: graph.reorder()),
    "rebalance": (_grown, lambda graph, trial: graph.rebalance()),
    "vertices": (None, lambda graph, trial: graph.add_vertices(trial.edges)),
    "delete": (_grown, lambda graph, trial: graph.delete_vertices(np.arange(N // 2))),
    "reads": (_grown, _reads),
    "first": (None, _update),  # of a graph that orders itself after it
}


def run(client: Client, trial: Trial, limit: str) -> Outcome:
    """Try it on a graph of its own; whatever happens is in the outcome."""
    outcome, pids = Outcome(trial, limit), list(client.run(os.getpid).values())
    try:
        with DynamicGraph(
            client, N, structure=trial.structure, weighted=trial.weighted, reverse=trial.reverse,
            directed=trial.directed, order="degree" if trial.kind == "first" else None,
        ) as graph:  # fmt: skip
            _try(graph, trial, outcome, pids)
    except Exception as error:
        outcome.outcome = outcome.outcome or "broken"
        outcome.wrong.append(f"{type(error).__name__}: {str(error)[:120]}")
    client.wait_for_workers(2, timeout=patience(60))
    if (now := sorted(client.run(os.getpid).values())) != sorted(pids):
        outcome.restarted = len(set(pids) - set(now))
        outcome.wrong.append(f"workers were {sorted(pids)} and are {now}")
    return outcome


def _try(graph: DynamicGraph, trial: Trial, outcome: Outcome, pids: list[int]) -> None:
    before, call = KINDS[trial.kind]
    if trial.kind != "first":
        graph.update(batch_of(trial, SEED_EDGES, 0))
    if before is not None:
        before(graph, trial)
    was = _seen(graph)
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
    try:
        with warnings.catch_warnings(record=True) as told:  # such as of an order for which there was no room
            warnings.simplefilter("always")
            call(graph, trial)
        outcome.outcome, outcome.text = "done", "; ".join(str(warning.message) for warning in told)
    except CapacityError as error:
        outcome.outcome, outcome.text = "CapacityError", str(error)
    except MgraphError as error:
        outcome.outcome, outcome.text = type(error).__name__, str(error)
        outcome.wrong.append(f"{type(error).__name__}: {str(error)[:120]}")
    outcome.peak = [_peak(pid) for pid in pids]
    _check(graph, trial, outcome, was)


def _seen(graph: DynamicGraph) -> dict[str, Any]:
    try:
        found = graph.fingerprint()  # first: with its answers the ranks say what they have
    except CapacityError:  # of a graph that was ordered: the names of its vertices have no room
        found = None
    return {
        "epoch": graph.epoch, "edges": graph.num_edges, "vertices": graph.num_vertices,
        "fingerprint": found,
    }  # fmt: skip


def _check(graph: DynamicGraph, trial: Trial, outcome: Outcome, was: dict[str, Any]) -> None:
    """Whether the graph is as it was, or as far as the call got, and goes on."""
    now = _seen(graph)
    stepwise = trial.kind in ("pipeline", "function", "files", "dask")
    if None in (now["fingerprint"], was["fingerprint"]):
        outcome.text += " (without a fingerprint)"
        now["fingerprint"] = was["fingerprint"] = None
    same = outcome.outcome != "done" or trial.kind in ("reorder", "rebalance", "reads")
    if same and not stepwise and now != was:
        outcome.wrong.append(f"was {was} and is {now}")
    if (
        stepwise
        and (now["fingerprint"], now["edges"]) != (was["fingerprint"], was["edges"])
        and now["epoch"] == was["epoch"]
    ):
        outcome.wrong.append(f"was {was} and is {now}")
    if trial.kind == "vertices":
        for call in (graph.rebalance, graph.reorder):
            _may_refuse(call)
            after = _seen(graph)
            if after["fingerprint"] is None:
                after["fingerprint"] = now["fingerprint"]
            if after != now:
                outcome.wrong.append(f"{call.__name__}: was {now} and is {after}")
    refused = _may_refuse(lambda: graph.insert([1, 2], [3, 4]))  # where the graph has grown into all of the memory
    outcome.text += f" (then two edges: {refused})" if refused else ""
    assert graph.has_edges([1, 2], [3, 4]).all() or refused


def _may_refuse(call: Callable[[], Any]) -> str:
    """Why it was refused, or nothing."""
    try:
        call()
    except CapacityError as error:
        return str(error)
    return ""


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
