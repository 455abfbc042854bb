"""Pictures of archived runs, as reproducible SVG files. They need no display."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

__all__ = ["picture"]

#: no date, no random ids
SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "mgraph", "font.size": 9}


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Open a figure of a size in inches for a block that draws it, then write it to `path`."""
    with rc_context(SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure
        figure.savefig(path, format="svg", metadata={"Date": None})
