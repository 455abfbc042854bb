"""Records of what tests have done, from which the page "What is promised, and how it is tested" takes its numbers.

A run with ``MGRAPH_RECORDS=docs/records`` in its environment writes ``docs/records/NAME.json`` for each name that its
passed tests have noted, in place of the one before. Only a run without a failure writes.

``python tests/support/promise_records.py docs/records FOLDER FOLDER ...`` sums the records of several runs, such as
parts of one campaign on several machines, and names the commits of all. It refuses runs that have a part in common, or
without parts a command.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

__all__ = ["counts", "merge", "note", "overlap", "sums", "write"]

ROOT = Path(__file__).parents[2]
SETTINGS = ("MGRAPH_FIRST_SEED", "MGRAPH_SEEDS")  #: of the environment, a part of the command

#: by kind of work, such as the shape of a simulated plan, the ranges of seeds that were run
Parts = dict[str, list[list[int]]]
#: the numbers and the parts of a record
Noted = tuple[dict[str, int], Parts]

_COUNTS: dict[str, Counter[str]] = {}
_PARTS: dict[str, Parts] = {}


def note(name: str, part: tuple[str, range] | None = None, /, **numbers: int) -> None:
    """Add numbers to the record `name` of this run; `part` says which seeds of which kind they are of."""
    _COUNTS.setdefault(name, Counter()).update(numbers)
    if part is not None:
        kind, seeds = part
        _add(_PARTS.setdefault(name, {}), {kind: [[seeds.start, seeds.stop]]})


def counts() -> dict[str, Noted]:
    """The numbers of this process, and of which parts they are."""
    return {name: (dict(numbers), _PARTS.get(name, {})) for name, numbers in _COUNTS.items()}


def merge(other: dict[str, Noted]) -> None:
    """Add the numbers of a worker of pytest-xdist."""
    for name, (numbers, parts) in other.items():
        note(name, **numbers)
        _add(_PARTS.setdefault(name, {}), parts)


def _add(parts: Parts, more: Parts) -> None:
    """Add ranges to those of each kind, and join the ones that follow each other."""
    for kind, ranges in more.items():
        joined: list[list[int]] = []
        for start, stop in sorted([*parts.get(kind, []), *ranges]):
            if joined and joined[-1][1] == start:
                joined[-1][1] = stop
            elif start < stop:
                joined.append([start, stop])
        parts[kind] = joined


def overlap(parts: Parts) -> str | None:
    """Return what was run twice, or None."""
    for kind, ranges in parts.items():
        for (_, stop), (start, _) in pairwise(ranges):
            if start < stop:
                return f"seed {start} of {kind}"
    return None


def write() -> list[Path]:
    """Write the records of this run to the folder that MGRAPH_RECORDS names, if it does."""
    if (folder := os.environ.get("MGRAPH_RECORDS")) is None:
        return []
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, (numbers, parts) in counts().items():
        record: dict[str, Any] = {
            "numbers": numbers,
            "command": _command(),
            "commit": _commit(),
            "date": datetime.now(UTC).date().isoformat(),
            "python": platform.python_version(),
        }
        if any(parts.values()):
            record["parts"] = parts
        paths.append(_write(where, name, record))
    return paths


def sums(folders: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Return the sums of the records that several runs have written to these folders, by name.

    Raises
    ------
    ValueError
        A record is of uncommitted changes, or two of them are of the same work.
    """
    by_name: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.json")):
        by_name.setdefault(path.stem, []).append(json.loads(path.read_text()))
    return {name: _sum(name, records) for name, records in by_name.items()}


def _sum(name: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    commits, commands = _each(records, "commit"), [part for record in records for part in record["command"].split("; ")]
    if all("parts" in record for record in records):  # which say more than the settings of the commands
        commands = sorted(
            {" ".join(word for word in command.split(" ") if not word.startswith(SETTINGS)) for command in commands}
        )
    if any(not commit or commit.endswith("+") for commit in commits):
        raise ValueError(f"{name}: only records of commits, without changes, can be summed; these are of {commits}")
    if len({*commands}) < len(commands):
        raise ValueError(f"{name}: two records have the same command: {commands}")
    numbers, parts = Counter[str](), Parts()
    for record in records:
        numbers.update(record["numbers"])
        _add(parts, record.get("parts", {}))
    if (twice := overlap(parts)) is not None:
        raise ValueError(f"{name}: {twice} is in two records")
    total = {
        "numbers": dict(numbers),
        "command": "; ".join(commands),
        "commit": ", ".join(commits),
        "date": max(_each(records, "date")),
        "python": ", ".join(_each(records, "python")),
    }
    return {**total, "parts": parts} if parts else total


def _each(records: Iterable[dict[str, Any]], key: str) -> list[str]:
    return sorted({part for record in records for part in record[key].split(", ")})


def _write(where: Path, name: str, record: dict[str, Any]) -> Path:
    path = where / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def _command() -> str:
    program = "python -m pytest" if "pytest" in sys.argv[0] else f"python {os.path.relpath(sys.argv[0], ROOT)}"
    settings = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
    return " ".join([*settings, program, *map(_quoted, sys.argv[1:])])


def _quoted(argument: str) -> str:
    return f'"{argument}"' if " " in argument else argument


def _commit() -> str:
    """The commit of the checkout, with a plus if files are changed; of a copy without git, what MGRAPH_COMMIT says."""
    if not (ROOT / ".git").exists():
        return os.environ.get("MGRAPH_COMMIT", "")

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


if __name__ == "__main__":
    for _name, _record in sums([Path(folder) for folder in sys.argv[2:]]).items():
        print(_write(Path(sys.argv[1]), _name, _record), _record["numbers"])
