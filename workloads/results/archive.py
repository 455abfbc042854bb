"""Archived runs of the benchmarks, with their parameters and provenance.

Among runs with equal parameters the newest complete one counts, or the newest if none is complete. A run ended by
Ctrl-C counts with its measurements. A run without its last line failed, and is skipped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mgraph.errors import ReadError

__all__ = ["Run", "newest", "of", "parameters", "provenance"]

Run = list[dict[str, Any]]

#: parameters that do not distinguish measurements
ASIDE = (
    "command",
    "bench",
    "out",
    "path",
    "archive",
    "commit",
    "structure",
    "device",
    "repeats",
    "warm",
    "builds",
    "no_rebuild",
    "part",
    "seed",
)
OF_ONE = ("bench-gap", "bench-graphalytics")  #: benchmarks of one structure per run; lines of others name theirs


def newest(folder: Path) -> list[Run]:
    """Return the run that counts for each benchmark and choice of parameters, among a folder's JSON lines."""
    # Keep complete runs before interrupted ones, then new ones before old ones.
    runs: dict[str, Run] = {}
    for path in folder.glob("*.jsonl"):
        lines = _read(path)
        if len(lines) > 1 and lines[0].get("kind") == "run" and lines[-1]["kind"] == "end":
            lines[0]["whole"] = not lines[-1].get("interrupted", False)
            key = lines[0]["name"] + json.dumps(parameters(lines[0]), sort_keys=True)
            if key not in runs or _rank(runs[key]) < _rank(lines):
                runs[key] = lines
    return [lines for _, lines in sorted(runs.items())]


def _rank(lines: Run) -> tuple[bool, str]:
    return lines[0]["whole"], lines[0]["time"]


def of(lines: Run, kind: str) -> Run:
    """Return the lines of a kind."""
    return [line for line in lines if line["kind"] == kind]


def _read(path: Path) -> Run:
    lines = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            lines.append(json.loads(text))
        except ValueError:
            raise ReadError(f"{path}, line {number} is not JSON") from None
    return lines


def parameters(first: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that distinguish this run, by its first line, from other measurements."""
    kept = ("structure",) if first["name"] in OF_ONE else ()
    chosen = {name: value for name, value in first["parameters"].items() if name in kept or name not in ASIDE}
    if not chosen.get("double"):
        chosen.pop("double_batch", None)
    return {name: value for name, value in chosen.items() if value not in (None, False, "")}


def provenance(first: dict[str, Any]) -> str:
    """Return hardware, day and commit of the run of this first line."""
    hardware = first["hardware"]
    where = f"{len(hardware['gpus'])} x {hardware['gpus'][0]}" if hardware["gpus"] else hardware["cpu"]
    if not hardware["gpus"]:
        where += f", {hardware['cores']} cores"
    # A commit given by name comes first: a copy of the tree may lie within another checkout.
    commit = first["parameters"].get("commit") or first.get("commit") or "unknown"
    cut = "" if first.get("whole", True) else ", interrupted before its end"
    return f"{where}, {first['time'][:10]}, commit {commit[:10]}{'-dirty' * commit.endswith('-dirty')}{cut}"
