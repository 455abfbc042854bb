"""``python -m workloads notebooks``: run the notebooks and store their outputs, which the documentation shows.

Left out are the times of cells, the state of widgets, and the release of the machine's kernel.
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
LIMIT = 1_200_000  #: total size of the notebooks, at most
CELL_SECONDS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("--only", metavar="TEXT", default="", help="only the notebooks whose name contains this")
    add("--folder", type=Path, default=FOLDER, metavar="DIR", help="where they lie (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Run the command. Returns 0, or 1 if the notebooks exceed `LIMIT`."""
    import nbformat

    console = Console(highlight=False, soft_wrap=True)
    # Choose the notebooks.
    every = sorted(options.folder.glob("*.ipynb"))
    chosen = [path for path in every if options.only in path.name]
    if not chosen:
        raise InvalidOption(f"{options.folder} has no notebook whose name contains {options.only!r}")

    # Run each, and store its outputs.
    for path in chosen:
        console.print(f"{path.name} ...")
        book = execute(path)
        _tidy(book)
        nbformat.write(book, path)
    size = sum(path.stat().st_size for path in every)
    console.print(f"notebooks: {len(every)}, {size:,} bytes; the limit is {LIMIT:,}")
    return int(size > LIMIT)


def execute(path: Path, **environment: str) -> Any:
    """Run the notebook at `path` and return it with its outputs, a `nbformat.NotebookNode`.

    Stdout and stderr of a cell are one output each. Raises a cell's error, as a `nbclient` error.
    """
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    python_path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    resources = {"metadata": {"path": str(path.parent)}}
    # A print is several writes, and a thread that starts a process flushes between them: join the pieces.
    client = NotebookClient(book, timeout=CELL_SECONDS, resources=resources, coalesce_streams=True)
    client.execute(env={**os.environ, "PYTHONPATH": python_path, "PYTHONWARNINGS": "default", **environment})
    return book


def _tidy(book: Any) -> None:
    """Remove the outputs that differ between runs and machines."""
    book.metadata.pop("widgets", None)
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:  # drop the empty outputs of progress bars
            cell.outputs = [output for output in cell.outputs if output.get("data", {}).get("text/html") != ""]
        for output in cell.get("outputs", []):
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)
            if "text" in output:
                output["text"] = output["text"].replace(platform.release(), "...")
