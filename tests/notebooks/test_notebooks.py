"""The notebooks run from top to bottom: on CPU workers here, and on GPUs where there are some."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))
CELL_SECONDS = 60


def execute(name: str, **environment: str) -> nbformat.NotebookNode:
    """The notebook with its outputs, one of stdout and one of stderr a cell; raises what a cell raises."""
    book = nbformat.read(FOLDER / name, as_version=4)
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(FOLDER.parent)]))
    resources = {"metadata": {"path": str(FOLDER)}}
    # a print is several writes, and a thread that starts a process flushes between them: its line comes in pieces
    client = NotebookClient(book, timeout=CELL_SECONDS, resources=resources, coalesce_streams=True)
    client.execute(env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "default", **environment})
    return book


def printed(book: nbformat.NotebookNode) -> str:
    """All text that the cells put out."""
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    texts = [output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return "\n".join("".join(text) for text in texts)


def images(book: nbformat.NotebookNode) -> int:
    return sum("image/png" in output.get("data", {}) for cell in book.cells for output in cell.get("outputs", []))


SAYS = {
    "1-first-graph.ipynb": ["libc6", "epoch=2", "are 1 step from libc6", "UnknownVertex: dst[0] is 107331"],
    "2-sliding-window.ipynb": ["epoch  32: PageRank", "libc6"],
    "3-placement.ipynb": ["start() would choose", "WorkerLost: graph", "deleted=10", "[("],
    "4-scaling.ipynb": ["points of"],
}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs_on_cpu_workers(name):
    book = execute(name, CUDA_VISIBLE_DEVICES="")
    for words in SAYS[name]:
        assert words in printed(book)
    errors = [output for cell in book.cells for output in cell.get("outputs", []) if output.output_type == "error"]
    assert errors == []


@pytest.mark.gpu
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs_on_gpus(name):
    book = execute(name)
    if name[0] in "12":
        assert " on cuda" in printed(book)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_is_small_and_without_outputs(name):
    book = nbformat.read(FOLDER / name, as_version=4)
    nbformat.validate(book)
    assert (FOLDER / name).stat().st_size < 20_000
    for cell in book.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


def test_scaling_is_plotted_from_what_is_archived(tmp_path):
    """Two runs of known figures, with lines among them that are none."""
    folder = tmp_path / "2x-test"
    folder.mkdir()
    for commit, seconds in (("a" * 40, 1.0), ("b" * 40, 0.5)):
        lines = [{"kind": "run", "name": "scaling", "time": "2026-01-02T03:04:05", "commit": commit}]
        for kind in ("strong", "weak"):
            for workers in (1, 2):
                rate = {"updates_per_s": 1e6 * workers / seconds}
                times = {"bfs": {"p50_ms": 8.0 / workers}, "pagerank": {"p50_ms": seconds}}
                lines.append(
                    {"kind": "scaling", "scaling": kind, "workers": workers, "pipelined": rate, "born": rate} | times
                )
        lines += [{"kind": "scaling", "scaling": "strong", "workers": 4}, {"kind": "end"}]
        text = "\n".join(map(json.dumps, lines)) + '\n{"kind": "scal'
        (folder / f"scaling-{commit[0]}.jsonl").write_text(text)
    book = execute("4-scaling.ipynb", MGRAPH_RESULTS=str(tmp_path))
    text = printed(book)
    assert "8 points of 2 runs" in text
    assert text.count("2 lines passed over") == 2
    said = "from the client 2.00, born on workers 2.00, BFS 2.00, PageRank 1.00"
    assert f"2x-test, bbbbbbbb, 2026-01-02: 2 workers over 1: {said}" in text
    assert images(book) == 1


def test_scaling_says_so_where_nothing_is_archived(tmp_path):
    book = execute("4-scaling.ipynb", MGRAPH_RESULTS=str(tmp_path))
    assert "nothing is archived yet" in printed(book)
    assert images(book) == 0
