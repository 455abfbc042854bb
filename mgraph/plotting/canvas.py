"""Optional import of Matplotlib, and figures that a notebook shows once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mgraph.errors import MgraphError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["needed", "shown_once"]


def needed(name: str) -> ModuleType:
    """Import a module for plots, or raise an error with the remedy."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise MgraphError(f'this picture needs {package}: pip install "dask-mgraph[plot]"') from None


def shown_once(figure: Any) -> None:
    """Close a figure in a notebook, which shows it as the cell's value."""
    # pyplot would show an open figure a second time.
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is not None:
        needed("matplotlib.pyplot").close(figure)
