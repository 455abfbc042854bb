"""Records of what tests have done, from which the page "What is promised, and how it is tested" takes its numbers.

A run with ``MGRAPH_RECORDS=docs/records`` in its environment writes ``docs/records/NAME.json`` for each name that its
passed tests have noted, in place of the one before. Only a run without a failure writes.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["counts", "merge", "note", "write"]

ROOT = Path(__file__).parents[2]

_COUNTS: dict[str, Counter[str]] = {}


def note(name: str, **numbers: int) -> None:
    """Add numbers to the record `name` of this run."""
    _COUNTS.setdefault(name, Counter()).update(numbers)


def counts() -> dict[str, dict[str, int]]:
    """The numbers of this process."""
    return {name: dict(numbers) for name, numbers in _COUNTS.items()}


def merge(other: dict[str, dict[str, int]]) -> None:
    """Add the numbers of a worker of pytest-xdist."""
    for name, numbers in other.items():
        note(name, **numbers)


def write() -> list[Path]:
    """Write the records of this run to the folder that MGRAPH_RECORDS names, if it does."""
    if (folder := os.environ.get("MGRAPH_RECORDS")) is None:
        return []
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    program = "python -m pytest" if "pytest" in sys.argv[0] else f"python {os.path.relpath(sys.argv[0], ROOT)}"
    command = " ".join([program, *map(_quoted, sys.argv[1:])])
    paths = []
    for name, numbers in _COUNTS.items():
        record: dict[str, Any] = {
            "numbers": dict(numbers),
            "command": command,
            "commit": _commit(),
            "date": datetime.now(UTC).date().isoformat(),
            "python": platform.python_version(),
        }
        paths.append(where / f"{name}.json")
        paths[-1].write_text(json.dumps(record, indent=1) + "\n")
    return paths


def _quoted(argument: str) -> str:
    return f'"{argument}"' if " " in argument else argument


def _commit() -> str:
    """The commit of the checkout, with a plus if files are changed."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
