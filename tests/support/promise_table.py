"""``python tests/support/promise_table.py``: writes the table of promises from the records of tests into its page.

A record is a file of ``docs/records``, which a test run writes; see `promise_records`. A row without a record says so.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["PAGE", "RECORDS", "ROWS", "Row", "table", "written"]

ROOT = Path(__file__).parents[2]
RECORDS, PAGE = ROOT / "docs" / "records", ROOT / "docs" / "guide" / "tested.md"
MARKED = re.compile(r"(<!-- promises:begin -->\n).*?(<!-- promises:end -->)", re.DOTALL)
HEADS = "| promise | how it is attacked | recorded | command |\n|---|---|---|---|\n"


class Row(NamedTuple):
    """A promise, the attack on it, the name of its record, and the command of all of the attack."""

    promise: str
    attack: str
    record: str
    command: str


ROWS = (
    Row(
        "An acknowledged change is there after a crash of the machine, and a refused one is not.",
        "Before each operation on a file, all that was not synced is dropped, torn or reordered. Each rule of the log "
        "is left out once, which must be found.",
        "crash-points",
        "make test ARGS=\"-m 'slow or not slow' -k crash_points\"",
    ),
    Row(
        "The same in every order of messages, losses, pauses and failing disks; nothing waits for ever.",
        "A simulator runs the protocol's own code with a virtual clock, network and disk.",
        "simulator",
        'MGRAPH_SEEDS=1000000 make test JOBS=48 ARGS="--dist load -m slow -k many_seeds"',
    ),
    Row(
        "An acknowledged change is there after kills of workers, clients and schedulers.",
        "Processes are killed or stopped at random moments of random streams; then the store is compared with a model.",
        "kills",
        "python tests/support/kill_sweep.py",
    ),
    Row(
        'The same with `disks="local"`.',
        "The same; each rank keeps its part of the store by itself.",
        "kills-local",
        "python tests/support/kill_sweep.py --disks local",
    ),
    Row(
        "The same without a cluster.",
        "The process that has the graph is killed.",
        "kills-in-process",
        "python tests/support/kill_sweep.py --in-process",
    ),
    Row(
        'With `recover="auto"` a call returns what it would have returned without the loss.',
        "A worker is lost in each stage of each kind of call.",
        "losses",
        'make test ARGS="-m slow -k each_stage_of_each_kind"',
    ),
    Row(
        "The other ranks learn of a lost one in time, give their memory back, and take another graph.",
        "A rank is killed or stopped in each stage of a program in which CPU workers meet in memory that they share: "
        "while regions grow, at the launch, between two stores, in a meeting, and when it leaves.",
        "ranks",
        "make test ARGS=\"-m 'slow or not slow' -k losses_in_a_program\"",
    ),
    Row(
        "The same on several GPUs.",
        "The same stages of a resident kernel.",
        "ranks-gpus",
        "make test ARGS=\"-m '(slow or not slow) and multigpu' -k losses_in_a_program\"",
    ),
    Row(
        "A flipped bit in a store is found, or changes nothing.",
        "A random bit of a random file of a random store is flipped.",
        "flips",
        "make test ARGS=\"-m 'slow or not slow' -k flips\"",
    ),
    Row(
        "A file or a folder that is missing, misnamed, cut or old is an error, or changes nothing.",
        "Each file and folder of a closed store is deleted, zeroed, truncated, duplicated, renamed, swapped, or "
        "replaced by an older copy.",
        "tampered",
        'make test ARGS="-m slow -k tampered"',
    ),
    Row(
        "After failing system calls the store has what was acknowledged, and nothing refused.",
        "Two system calls fail on each kind of change, followed by a snapshot and another change.",
        "failing-calls",
        'make test ARGS="-m slow -k failing_calls"',
    ),
    Row(
        "A call without memory raises `CapacityError` or `MemoryError`, the graph is as it was, the memory is given "
        "back, and the next call works.",
        "On the host, each allocation of at least 1 KiB fails once: in changes, structures, algorithms, reads, "
        "converters, stores and their opening, and on one rank of two at a time.",
        "allocations",
        'make test ARGS="-m slow -k failing_allocations"',
    ),
    Row(
        "The same on a GPU.",
        "Each allocation of at least 1 KiB on the GPU fails once.",
        "allocations-gpu",
        "make test ARGS=\"-m 'slow and gpu' -k failing_allocations\"",
    ),
    Row(
        "The same on several GPUs.",
        "Each allocation of at least 1 KiB fails once on one rank of two at a time: of a GPU, of memory that GPUs map, "
        "and of page-locked memory.",
        "allocations-gpus",
        "make test ARGS=\"-m 'slow and multigpu' -k failing_allocations\"",
    ),
    Row(
        "Hostile bytes run no code and end no process.",
        "Mutated stores, tails in shared memory, followed files, messages and segments are read.",
        "hostile",
        "make test ARGS=\"-m slow -k 'hostile or mutated'\"",
    ),
)


def _recorded(name: str, records: Path) -> str:
    """The cell of a record: its numbers, commit and day."""
    path = records / f"{name}.json"
    if not path.exists():
        return "no run is recorded"
    record: dict[str, Any] = json.loads(path.read_text())
    numbers = ", ".join(f"{number:,} {what.replace('_', ' ')}" for what, number in record["numbers"].items())
    return f"{numbers} ({record['commit']}, {record['date']})"


def table(records: Path = RECORDS) -> str:
    """The table as Markdown."""
    cells = ((row.promise, row.attack, _recorded(row.record, records), f"`{row.command}`") for row in ROWS)
    return HEADS + "".join(f"| {' | '.join(row)} |\n" for row in cells)


def written(page: str, records: Path = RECORDS) -> str:
    """The text of the page with the table of now."""
    text, n = MARKED.subn(lambda found: found[1] + table(records) + found[2], page)
    assert n == 1, f"{n} places for the table"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
