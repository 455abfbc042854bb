"""Matplotlib, where it is installed, and figures that a notebook shows once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mgraph.errors import MgraphError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["needed", "shown_once"]


def needed(name: str) -> ModuleType:
    """A module that pictures need; `MgraphError` that says how to install it."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise MgraphError(f'this picture needs {package}: pip install "dask-mgraph[plot]"') from None


def shown_once(figure: Any) -> None:
    """In a notebook, leave the display to the value of the cell: pyplot would show the figure a second time."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is not None:
        needed("matplotlib.pyplot").close(figure)
