"""The examples of the pages print what the pages show."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys

import pytest
from graph_clusters import processes
from pages import DOCS, ROOT, blocks, name, only
from patience import patience

MARKED = [page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts and blocks(page, "pycon")]
#: pages whose examples take seconds, and call what the other pages' examples and the tests of graphs do
LONG = (
    "live-communities",
    "mixed-streams",
    "own-algorithms",
    "read-while-it-changes",
    "results",
    "which-algorithm",
    "windows",
)


@pytest.fixture(scope="module")
def client():
    with processes(2) as client:
        yield client


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=name(page), marks=pytest.mark.slow if page.stem in LONG else ()) for page in MARKED]
)
def test_examples_run(page, client, capsys):
    given = {"client": client, "__name__": "__main__"}  # by that name a function travels to the workers by value
    test = doctest.DocTestParser().get_doctest(only(page, "pycon"), given, page.stem, str(page), 0)
    assert test.examples
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert result.failed == 0, capsys.readouterr().out


def test_pages_have_examples():
    assert {"start", "which-call", "which-structure", "several-gpus", "results"} <= {page.stem for page in MARKED}


def test_the_readme_prints_what_it_shows(tmp_path):
    (code,) = blocks(ROOT / "README.md", "python")
    (shown,) = blocks(ROOT / "README.md", "text")
    assert len(code.splitlines()) <= 10 + code.splitlines().count("")
    script = tmp_path / "ten_lines.py"
    script.write_text(code)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=patience(90),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown
