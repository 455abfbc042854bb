"""The notebooks run from top to bottom, on CPU workers and on GPUs where there are some, and store their outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from workloads.__main__ import main
from workloads.notebooks import FOLDER, LIMIT, execute

nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


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
    "5-networkx.ipynb": [
        "below 1e-6",
        "'libc6']",
        "within two steps of my-package: base-files, bash,",
        "DiGraph with 69865 nodes",
    ],
    "6-tour.ipynb": ["sid        11 batches: 122,573 new,  77,685 gone; 419,156", "gcc-16-base", "among 90 packages"],
    "7-live-window.ipynb": ["193 batches: 23,193 edges came, 23,078 expired, 115 are left", "incremental"],
    "8-communities.ipynb": ["88,451 packages, 415,172 pairs", "packages: libglib2.0-0t64, libx11-6"],
    "9-river.ipynb": ["329,910 e-mails of 986 people in 76 weeks", "split from name", "merged into name"],
}
#: what is not in the repository
DATA = {"7-live-window.ipynb": "CollegeMsg.npz", "9-river.ipynb": "email-Eu-core-temporal.npz"}


def environment(name: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Where a notebook finds its data; skips the test where they are not here."""
    if name not in DATA:
        return {}
    folder: Path = request.getfixturevalue("data_dir")
    if not (folder / DATA[name]).exists():
        pytest.skip(f"{folder} has no {DATA[name]}")
    return {"MGRAPH_DATA": str(folder)}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name[0] == "1" else pytest.mark.slow) for name in NOTEBOOKS]
)
def test_runs_on_cpu_workers(name, request):
    forked = {"CUDA_VISIBLE_DEVICES": "", "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver"}
    book = execute(FOLDER / name, **forked, **environment(name, request))
    for words in SAYS[name]:
        assert words in printed(book)
    errors = [output for cell in book.cells for output in cell.get("outputs", []) if output.output_type == "error"]
    assert errors == []


@pytest.mark.gpu
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs_on_gpus(name, request):
    book = execute(FOLDER / name, **environment(name, request))
    if name[0] in "12":
        assert " on cuda" in printed(book)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_stores_the_outputs_of_one_run(name):
    """What `make notebooks` leaves: every cell ran, in order, without an error."""
    book = nbformat.read(FOLDER / name, as_version=4)
    nbformat.validate(book)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs
    assert [output for output in outputs if output.output_type == "error"] == []
    for words in SAYS[name]:
        assert words in printed(book)


def test_stored_outputs_are_small_and_name_no_home():
    texts = {path.name: path.read_text() for path in FOLDER.glob("*.ipynb")}
    assert sum(len(text.encode()) for text in texts.values()) < LIMIT
    for name, text in texts.items():
        assert re.findall(r"/(?:home|root|Users)/[^\s\"]*", text) == [], name


def test_the_command_stores_outputs(tmp_path, capsys):
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(6 * 7)")])
    nbformat.write(book, tmp_path / "small.ipynb")
    assert main(["notebooks", "--folder", str(tmp_path)]) == 0
    (cell,) = nbformat.read(tmp_path / "small.ipynb", as_version=4).cells
    assert (cell.execution_count, cell.outputs[0].text, cell.metadata) == (1, "42\n", {})
    assert "notebooks: 1, " in capsys.readouterr().out
    assert main(["notebooks", "--folder", str(tmp_path), "--only", "large"]) == 2
    assert "'large'" in capsys.readouterr().err


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
    book = execute(FOLDER / "4-scaling.ipynb", MGRAPH_RESULTS=str(tmp_path))
    text = printed(book)
    assert "8 points of 2 runs" in text
    assert "4 lines of 2 files skipped" in text
    said = "from the client 2.00, from the workers 2.00, BFS 2.00, PageRank 1.00"
    assert f"2x-test, bbbbbbbb, 2026-01-02: 2 workers over 1: {said}" in text
    assert images(book) == 1


@pytest.mark.slow
def test_scaling_says_so_where_nothing_is_archived(tmp_path):
    book = execute(FOLDER / "4-scaling.ipynb", MGRAPH_RESULTS=str(tmp_path))
    assert "nothing is archived yet" in printed(book)
    assert images(book) == 0
