"""Optional import of Matplotlib, and figures that a notebook shows once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mgraph.facade import needed

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["for_plots", "shown_once"]


def for_plots(module: str) -> ModuleType:
    """Import a module for plots, or raise an error with the remedy."""
    return needed(module, "this picture", '"dask-mgraph[plot]"')


def shown_once(figure: Any) -> None:
    """Close a figure in a notebook, which shows it as the cell's value."""
    # pyplot would show an open figure a second time.
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is not None:
        for_plots("matplotlib.pyplot").close(figure)
