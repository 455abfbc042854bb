"""Workers, clients and schedulers are killed at random moments: a sample of `support/kill_sweep.py`, and all of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from kill_sweep import Sweep, note_counts


def sweep(path: Path, kills: int, **options: Any) -> None:
    swept = Sweep(path, random.randrange(1 << 30), **options)
    try:
        swept.run(kills)
        note_counts(swept.counts)
    finally:
        print(swept)
    assert swept.kills >= kills
    assert swept.counts["opened"] == swept.counts["client"] > 0


def test_a_sample_of_kills_in_a_process(tmp_path):
    sweep(tmp_path / "store", 1, in_process=True)


@pytest.mark.slow
def test_a_sample_of_kills(tmp_path):
    sweep(tmp_path / "store", 2, losses={"worker": 1})


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_300_kills(tmp_path):
    sweep(tmp_path / "store", 300)
