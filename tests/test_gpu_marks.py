"""Marks of tests for several GPUs."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent


def test_tests_for_several_gpus_are_marked_in_their_own_files() -> None:
    """``-m multigpu`` imports the files alone that have this word, so no other file may mark their tests."""
    others = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    assert [path.name for path in others if "mark.multigpu" in path.read_text()] == []
