"""The page of promises has the numbers of the tests' own records, and each record has a row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import promise_records
import pytest
from promise_table import PAGE, RECORDS, ROWS, table, written


def test_the_table_has_the_numbers_of_the_records():
    assert PAGE.read_text() == written(PAGE.read_text()), "run python tests/support/promise_table.py"


def test_each_record_has_a_row_and_says_how_it_was_made():
    for path in RECORDS.glob("*.json"):
        record = json.loads(path.read_text())
        assert path.stem in {row.record for row in ROWS}
        assert {"numbers", "command", "commit", "date"} <= set(record)
        assert all(isinstance(number, int) for number in record["numbers"].values())
        if parts := record.get("parts"):
            assert promise_records.overlap(parts) is None
            assert record["numbers"]["seeds"] == sum(
                stop - start for ranges in parts.values() for start, stop in ranges
            )


def test_a_row_without_a_record_says_so(tmp_path):
    (tmp_path / "flips.json").write_text(
        json.dumps({"numbers": {"flips": 1234, "found": 1000}, "commit": "abc", "date": "2026-11-27", "command": ""})
    )
    lines = table(tmp_path).splitlines()
    assert len(lines) == 2 + len(ROWS)
    assert sum("no run is recorded" in line for line in lines) == len(ROWS) - 1
    assert sum("1,234 flips, 1,000 found (abc, 2026-11-27)" in line for line in lines) == 1


def test_a_run_writes_its_records_if_it_passed(tmp_path):
    folder, support = tmp_path / "records", os.path.dirname(promise_records.__file__)
    paths = os.pathsep.join(filter(None, [support, str(promise_records.ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "MGRAPH_RECORDS": str(folder), "PYTHONPATH": paths}
    test = "from promise_records import note\n\ndef test_%s():\n    note('flips', flips=%d)\n    assert %s\n"
    (tmp_path / "conftest.py").write_text((promise_records.ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_one.py").write_text(test % ("one", 3, True))

    def run(passes: bool, *workers: str) -> int:
        (tmp_path / "test_two.py").write_text(test % ("two", 4, passes))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", *workers]
        return subprocess.run([*command, str(tmp_path)], env=environment, cwd=tmp_path, timeout=100).returncode

    assert run(False) == 1
    assert not folder.exists()
    assert run(True, "-n", "2") == 0
    record = json.loads((folder / "flips.json").read_text())
    assert record["numbers"] == {"flips": 7}
    assert record["command"].startswith("python -m pytest -q")


def test_parts_that_ran_in_several_processes_are_joined(monkeypatch, tmp_path):
    monkeypatch.setattr(promise_records, "_COUNTS", {})
    monkeypatch.setattr(promise_records, "_PARTS", {})
    monkeypatch.setenv("MGRAPH_RECORDS", str(tmp_path))
    monkeypatch.setenv("MGRAPH_SEEDS", "60")
    monkeypatch.setattr(sys, "argv", ["pytest", "-k", "many seeds"])
    promise_records.note("simulator", ("large", range(20, 30)), seeds=10, events=500)
    for start in (10, 0, 50):
        parts = {"large": [[start, start + 10]], "small": [[start, start + 1]]}
        promise_records.merge({"simulator": ({"seeds": 11, "events": 600}, parts)})
    (path,) = promise_records.write()
    record = json.loads(path.read_text())
    assert record["numbers"] == {"seeds": 43, "events": 2300}
    assert record["parts"] == {"large": [[0, 30], [50, 60]], "small": [[0, 1], [10, 11], [50, 51]]}
    assert record["command"].endswith('MGRAPH_SEEDS=60 python -m pytest -k "many seeds"')
    assert promise_records.overlap(record["parts"]) is None
    promise_records.note("simulator", ("large", range(59, 70)), seeds=11)
    assert promise_records.overlap(promise_records.counts()["simulator"][1]) == "seed 59 of large"


def recorded(folder: Path, start: int = 0, **other: Any) -> Path:
    """Write a record of ten seeds to a folder."""
    record = {
        "numbers": {"seeds": 10, "events": 500}, "command": f"MGRAPH_FIRST_SEED={start} python -m pytest",
        "commit": "abc", "date": f"2026-11-{start + 10}", "python": "3.11.7", "parts": {"large": [[start, start + 10]]},
    }  # fmt: skip
    folder.mkdir()
    without = {name for name, value in other.items() if value is None}
    record = {name: value for name, value in (record | other).items() if name not in without}
    (folder / "simulator.json").write_text(json.dumps(record))
    return folder


def test_records_of_several_runs_are_summed(tmp_path):
    later = {"commit": "abc, abd", "python": "3.11.7, 3.12.3"}
    folders = [recorded(tmp_path / "a", 10), recorded(tmp_path / "b"), recorded(tmp_path / "c", 20, **later)]
    (tmp_path / "c" / "flips.json").write_text((tmp_path / "c" / "simulator.json").read_text())
    command = [sys.executable, promise_records.__file__, str(tmp_path), *map(str, folders)]
    subprocess.run(command, check=True, timeout=30)
    record = json.loads((tmp_path / "simulator.json").read_text())
    assert record["numbers"] == {"seeds": 30, "events": 1500}
    assert record["parts"] == {"large": [[0, 30]]}
    assert record["command"] == "python -m pytest"
    assert (record["commit"], record["date"], record["python"]) == ("abc, abd", "2026-11-30", "3.11.7, 3.12.3")
    assert json.loads((tmp_path / "flips.json").read_text())["numbers"]["seeds"] == 10


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"commit": "abd+"}, r"without changes.*'abc', 'abd\+'"),
        ({"command": "MGRAPH_FIRST_SEED=0 python -m pytest", "parts": None}, "the same command"),
        ({"command": "a; MGRAPH_FIRST_SEED=0 python -m pytest; b", "parts": None}, "the same command"),
        ({"parts": {"small": [[0, 10]], "large": [[20, 29], [9, 10]]}}, "seed 9 of large is in two records"),
    ],
)
def test_records_that_cannot_be_summed_are_refused(tmp_path, other, said):
    folders = [recorded(tmp_path / "a"), recorded(tmp_path / "b", 10, **other)]
    with pytest.raises(ValueError, match=f"simulator: .*{said}"):
        promise_records.sums(folders)


@pytest.mark.parametrize("commit", ["abc+", ""])
def test_records_of_uncommitted_changes_are_not_summed(tmp_path, commit):
    folders = [recorded(tmp_path / "a", commit=commit), recorded(tmp_path / "b", 10, commit=commit)]
    with pytest.raises(ValueError, match="without changes"):
        promise_records.sums(folders)
