"""What the pages say is there: links lead somewhere, names can be imported, tables are those of the archive."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from pathlib import Path

import pytest
from pages import DOCS, PAGES, ROOT, anchors, blocks, links, name

import mgraph
from workloads.__main__ import main

AUTO = re.compile(r"^\.\. auto(?:class|method|function|property|data|module):: (\S+)$")
CURRENT = re.compile(r"^\.\. currentmodule:: (\S+)$")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.is_relative_to(ROOT), target
        assert there.exists(), f"{name(page)} links to {target}"
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), f"{name(page)} links to {target}"


def test_there_are_links():
    found = {name(page): list(links(page)) for page in PAGES}
    assert "docs/figures.md" in found["README.md"]
    assert "../_static/parts.svg" in found["docs/contributing/architecture.md"]


def resolved(page: Path) -> list[object]:
    """What a page's directives document."""
    found, module = [], ""
    for line in "".join(blocks(page, "{eval-rst}")).splitlines():
        if current := CURRENT.match(line):
            module = current[1]
        elif written := AUTO.match(line):
            absolute = written[1].split(".")[0] in ("mgraph", "cluster", "workloads")
            found.append(resolve(written[1] if absolute else f"{module}.{written[1]}"))
    return found


def resolve(path: str) -> object:
    """The object of a dotted path."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = inspect.getattr_static(value, part) if inspect.isclass(value) else getattr(value, part)
        return value
    raise ModuleNotFoundError(path)


@pytest.mark.parametrize("page", sorted((DOCS / "api").glob("*.md")), ids=name)
def test_what_the_api_documents_is_there(page):
    if page.name != "index.md":
        assert resolved(page)


def test_the_api_documents_all_of_the_graph():
    members = {key for kind in mgraph.DynamicGraph.__mro__[:-1] for key in vars(kind) if not key.startswith("_")}
    given = {key for key in members if callable(getattr(mgraph.DynamicGraph, key)) or _is_property(key)}
    written = set(re.findall(r"DynamicGraph\.(\w+)$", (DOCS / "api" / "graph.md").read_text(), re.MULTILINE))
    assert written == given


def _is_property(key: str) -> bool:
    return isinstance(inspect.getattr_static(mgraph.DynamicGraph, key), property)


def test_the_api_documents_every_public_name():
    text = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    assert [public for public in mgraph.__all__ if not re.search(rf"\b{public}\b", text)] == []


WITH_TABLES = [
    name(page) for page in PAGES if "<!-- results:begin" in page.read_text() and page.parent.name != "benchmarks"
]


@pytest.mark.parametrize("page", WITH_TABLES)
def test_tables_are_those_of_the_archive(page, tmp_path, capsys):
    copy = tmp_path / "page.md"
    shutil.copyfile(ROOT / page, copy)
    assert main(["report", "--write", str(copy)]) == 0
    assert copy.read_text() == (ROOT / page).read_text()


def test_the_readme_has_six_figures():
    text = (ROOT / "README.md").read_text()
    table = text[text.index("results:begin six-by-gpus") : text.index("results:end")]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 6
    assert re.fullmatch(r"\| ms, .* \| 1 GPU \|( \d GPUs \|)+", rows[0])
    assert all(re.fullmatch(r"[\d.]+( \*)?", cell.strip()) for row in rows[2:] for cell in row.split("|")[2:-1])


def test_the_citation_has_the_version():
    assert f"version: {mgraph.__version__}" in (ROOT / "CITATION.cff").read_text().splitlines()


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


def test_the_architecture_names_every_module():
    """The row of each folder of both sides names the modules that are there, and no others."""
    text = (DOCS / "contributing" / "architecture.md").read_text()
    for side in ("client", "worker"):
        folder = ROOT / "mgraph" / side
        table = text[text.index(f"| folder of `mgraph/{side}/` |") :].split("\n\n")[0]
        rows = dict(re.findall(r"^\| `([\w/.]+)` \|(.*)\|$", table, re.MULTILINE))
        here = {path.name for path in folder.glob("*.py")} | {f"{path.parent.name}/" for path in folder.glob("*/*.py")}
        assert set(rows) == here - {"__init__.py"}
        for row in (row for row in rows if row.endswith("/")):
            there = {path.stem for path in (folder / row).glob("*.py")} - {"__init__"}
            assert set(re.findall(r"`(\w+)`", rows[row])) == there, f"{side}/{row}"
