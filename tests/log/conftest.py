"""Small files for logs in memory."""

from __future__ import annotations

import pytest

from mgraph.log import segments


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocate little at a time: a log of a test is small, and read often."""
    monkeypatch.setattr(segments, "CHUNK", 1 << 12)
    monkeypatch.setattr(segments, "RESERVE", 1 << 10)
