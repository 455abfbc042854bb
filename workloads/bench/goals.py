"""Goals of maintained results: upper bounds of a read's time, in milliseconds and relative to a fresh run.

`docs/notebook/live-results.md` states them.
"""

from __future__ import annotations

from typing import Any

__all__ = ["goals_of", "verdict"]

#: a read at most, relative to the fresh run after the same batch: in the median, and the longest
SHARES = {"share": 1.0, "worst": 1.5}
#: of Leiden on RMAT graphs, which have no communities
LEIDEN_RMAT = {"worst": 1.1}
#: median milliseconds by the largest number of changes, of graphs with at most so many edges on one GPU
MS = {("leiden", "planted"): {100: 10.0, 10_000: 50.0}, ("pagerank", "rmat"): {5000: 10.0}}
EDGES = 550_000_000
#: the same on a CPU, with two threads
CPU_MS = {("leiden", "planted"): {100: 5.0}}
CPU_EDGES = 1_100_000


def goals_of(name: str, shape: str, changes: int, edges: int, device: str) -> dict[str, float]:
    """Return the upper bounds of a line of ``bench live``, by its columns.

    Parameters
    ----------
    name, shape : str
        The result, and the shape of the graph.
    changes, edges : int
        Changes per batch, and edges of the graph.
    device : str
        "cpu" or "cuda". On a CPU, shares are of CPU time.
    """
    shares = {**SHARES, **(LEIDEN_RMAT if (name, shape) == ("leiden", "rmat") else {})}
    by_changes, most_edges = (CPU_MS, CPU_EDGES) if device == "cpu" else (MS, EDGES)
    if device == "cpu":
        shares = {f"cpu_{column}": bound for column, bound in shares.items()}
    bounds = [ms for most, ms in by_changes.get((name, shape), {}).items() if changes <= most and edges <= most_edges]
    return {**shares, **({"p50_ms": min(bounds)} if bounds else {})}


def verdict(goals: dict[str, float], line: dict[str, Any]) -> str:
    """Return the goals as text, each that is missed marked."""
    missed = {column: "" if line[column] <= bound else " missed" for column, bound in goals.items()}
    return ", ".join(f"{column.replace('_', ' ')} {bound:g}{missed[column]}" for column, bound in goals.items())
