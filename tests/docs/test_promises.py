"""The page of promises has the numbers of the tests' own records, and each record has a row."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import promise_records
from promise_table import PAGE, RECORDS, ROWS, table, written


def test_the_table_has_the_numbers_of_the_records():
    assert PAGE.read_text() == written(PAGE.read_text()), "run python tests/support/promise_table.py"


def test_each_record_has_a_row_and_says_how_it_was_made():
    for path in RECORDS.glob("*.json"):
        record = json.loads(path.read_text())
        assert path.stem in {row.record for row in ROWS}
        assert {"numbers", "command", "commit", "date"} <= set(record)
        assert all(isinstance(number, int) for number in record["numbers"].values())


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
