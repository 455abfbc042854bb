"""Pivot tables: a row per measurement, a column per measured structure or code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["pivot"]

Measured = tuple[str, str, str, Any]  #: graph, measure, column, value


def pivot(measured: Iterable[Measured]) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows, both in order of first appearance, with "" for missing values."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for graph, what, who, value in measured:
        cells.setdefault((graph, what), {})[who] = value
    names = list(dict.fromkeys(name for row in cells.values() for name in row))
    rows = [[*key, *(row.get(name, "") for name in names)] for key, row in cells.items()]
    return ["graph", "what", *names], rows
