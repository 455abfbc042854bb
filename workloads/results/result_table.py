"""Measurements as a table: a row a measurement, a column for each who or what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["pivot"]

Measured = tuple[str, str, str, Any]  #: the graph, what was measured, of whom, the value


def pivot(measured: Iterable[Measured]) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows, both in order of first appearance; nothing where there is no value."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for graph, what, who, value in measured:
        found.setdefault((graph, what), {})[who] = value
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    rows = [[*key, *(row.get(name, "") for name in names)] for key, row in found.items()]
    return ["graph", "what", *names], rows
