"""``python -m workloads notebooks``: run the notebooks and store their outputs, which the documentation shows.

Left out is what a reader has no use for: the times of cells, the state of widgets, and the release of the
machine's kernel.
"""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path
from typing import Any

from rich.console import Console

from mgraph.errors import InvalidOption

__all__ = ["HELP", "LIMIT", "add_arguments", "execute", "run"]

HELP = "run the notebooks and store their outputs"
ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
LIMIT = 500_000  #: bytes that all notebooks may have together
CELL_SECONDS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("--only", metavar="TEXT", default="", help="only the notebooks whose name contains this")
    add("--folder", type=Path, default=FOLDER, metavar="DIR", help="where they lie (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Run the command; returns 0, or 1 where the notebooks are larger than `LIMIT` afterwards."""
    import nbformat

    console = Console(highlight=False, soft_wrap=True)
    every = sorted(options.folder.glob("*.ipynb"))
    chosen = [path for path in every if options.only in path.name]
    if not chosen:
        raise InvalidOption(f"{options.folder} has no notebook whose name contains {options.only!r}")
    for path in chosen:
        console.print(f"{path.name} ...")
        book = execute(path)
        _tidy(book)
        nbformat.write(book, path)
    size = sum(path.stat().st_size for path in every)
    console.print(f"notebooks: {len(every)}, {size:,} bytes; the limit is {LIMIT:,}")
    return int(size > LIMIT)


def execute(path: Path, **environment: str) -> Any:
    """The notebook at `path` with its outputs, as a `nbformat.NotebookNode`.

    Stdout and stderr of a cell are one output each. Raises what a cell raises, as a `nbclient` error.
    """
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    found = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    resources = {"metadata": {"path": str(path.parent)}}
    # a print is several writes, and a thread that starts a process flushes between them: its line comes in pieces
    client = NotebookClient(book, timeout=CELL_SECONDS, resources=resources, coalesce_streams=True)
    client.execute(env={**os.environ, "PYTHONPATH": found, "PYTHONWARNINGS": "default", **environment})
    return book


def _tidy(book: Any) -> None:
    """Leave out what only this run and this machine know."""
    book.metadata.pop("widgets", None)
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:  # without the bars of long calls, which have gone
            cell.outputs = [one for one in cell.outputs if one.get("data", {}).get("text/html") != ""]
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
            if "text" in output:
                output["text"] = output["text"].replace(platform.release(), "...")
