"""The check of the language that `make lint` runs: its counts on a small package, and the limits of pyproject.toml."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = '''"""Module of a sample."""

LIMIT = 3  #: maximum


class Sample:
    """What one class is, that there is one."""

    @property
    def size(self):
        """The size."""
        return 0

    def find(self):
        """What is found.

        What a later paragraph says does not count.
        """
        # Look here.
        found = given = 1
        for one in (): pass
        return found + given + one

    def copy(self):
        """A copy."""

    def plain(self):
        """Return nothing."""


# ---- a banner ----
'''


@pytest.fixture(scope="module")
def language() -> ModuleType:
    spec = importlib.util.spec_from_file_location("language", ROOT / ".ci" / "language.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["language"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def values(language: ModuleType, tmp_path: Path) -> dict[str, float]:
    (tmp_path / "sample.py").write_text(SAMPLE)
    return language.measure(tmp_path).values()


def test_docstrings_are_counted_by_their_first_paragraph(values):
    words = 4 + 8 + 2 + 3 + 2 + 2
    assert values["openers"] == 25  # of four functions `find`; that of the class is no function's
    assert values["articles"] == 25  # of four functions `copy`; a property may begin with an article
    assert values["what"] == pytest.approx(1000 * 2 / words)
    assert values["one"] == pytest.approx(1000 * 2 / words)
    assert values["that"] == values["there"] == pytest.approx(1000 / words)
    assert values["median-words"] == 3


def test_comments_and_assigned_names_are_counted(values):
    assert values["comments"] == pytest.approx(100 / SAMPLE.count("\n"))
    assert values["vague-names"] == 2  # a loop's variable is not assigned


def test_a_measure_past_its_limit_is_named(language, values):
    assert language.exceeded(values, dict(values)) == []
    limits = {**values, "articles": 24, "comments": 50}
    assert language.exceeded(values, limits) == [
        "articles is 25.0, at most 24",
        f"comments is {values['comments']:.1f}, at least 50",
    ]
    with pytest.raises(SystemExit, match="needs limits for openers"):
        language.exceeded(values, {"openers": 3})
