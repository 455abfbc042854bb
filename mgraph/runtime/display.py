"""How a graph shows itself: as text, and in notebooks; from what is known, without asking a worker."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from dask.utils import format_bytes, format_time

__all__ = ["as_html", "as_text"]

COLUMNS = ("rank", "worker", "vertices", "edges", "of the mean", "memory", "last batch")


def _rows(addresses: Sequence[str], states: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    mean = sum(state.get("edges", 0) for state in states) / max(1, len(states))
    return [
        (
            str(rank),
            address,
            f"{state.get('hi', 0) - state.get('lo', 0):,}",
            f"{state.get('edges', 0):,}",
            f"{state.get('edges', 0) / mean:.2f}" if mean else "-",
            format_bytes(state.get("nbytes", 0)),
            format_time(state["seconds"]) if state.get("seconds") else "-",
        )
        for rank, (address, state) in enumerate(zip(addresses, states, strict=True))
    ]


def as_text(title: str, addresses: Sequence[str], states: Sequence[dict[str, Any]]) -> str:
    """A title and a line a worker: vertices, edges, their share of the mean, bytes."""
    table = [COLUMNS, *_rows(addresses, states)]
    widths = [max(len(row[i]) for row in table) for i in range(len(COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join([title, *(f"  {line}" for line in lines)])


def as_html(title: str, addresses: Sequence[str], states: Sequence[dict[str, Any]]) -> str:
    """The same as a table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in _rows(addresses, states)
    )
    return f"<p>{escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
