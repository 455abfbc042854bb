"""The user's process as the place of a graph."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from mgraph.checks import is_choice
from mgraph.client.calls.caller import Caller
from mgraph.client.inputs.source_parts import AsParts
from mgraph.errors import InvalidOption
from mgraph.local.closing import await_closed
from mgraph.local.coordinator import Coordinator
from mgraph.local.parts import as_parts
from mgraph.tables.arrays import written

__all__ = ["Here"]


class Here:
    """The GPU or the CPU of this process. Implements `mgraph.client.creation.place.Place`.

    Parameters
    ----------
    workers : None
        Workers belong to a cluster.
    exchange : "auto" | "loopback"

    Raises
    ------
    InvalidOption
        Workers are named, or the exchange is one between processes.
    """

    size = 1

    def __init__(self, workers: Sequence[str] | None, exchange: str) -> None:
        if workers is not None:
            raise InvalidOption(
                f"workers is {written(workers)}; a graph without a Dask client is in this process and has none"
            )
        if not is_choice(exchange, ("auto", "loopback")):
            raise InvalidOption(
                f'exchange {exchange!r} connects workers; a graph without a Dask client has "auto" or "loopback"'
            )

    def begin(self, patience: float) -> tuple[Caller, AsParts]:
        """Return the coordinator of a new graph, and the parser of its sources."""
        await_closed()
        return Coordinator(uuid.uuid4().hex[:12]), as_parts

    def renewed(self, lost: Caller, end: float) -> Here:
        """Return this process again."""
        return self

    def exchange(self, caller: Caller, exchange: str, device: str, answers: Sequence[dict[str, Any]]) -> str:
        """Return "loopback": a single rank has no partner."""
        return "loopback"
