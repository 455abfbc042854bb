"""Logs of graphs that have none: an earlier epoch of a store, or the copy of a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mgraph.errors import InvalidOption
from mgraph.log.records import WITHIN, SnapshotState

__all__ = ["ReadOnly"]


class ReadOnly:
    """Refuses every change that takes an epoch: the `Log` of a read-only graph.

    Parameters
    ----------
    epoch : int
        The epoch of the graph, which stays.
    why : str
        The first words of the message of a refusal: which graph this is.
    """

    broken: str | None = None
    last = ""
    attempt = lag = place = 0
    vote = SnapshotState.IDLE
    safe = None

    def __init__(self, epoch: int, why: str) -> None:
        self.durable, self.why = epoch, why
        self.offsets: dict[str, int] = {}

    def begin(
        self,
        kind: str,
        columns: Mapping[str, Any],
        epoch: int,
        ahead: bool = False,
        more: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Refuse a change that takes an epoch.

        A change of a kind in `WITHIN` takes none, and goes on.

        Raises
        ------
        InvalidOption
            The change takes an epoch.
        """
        if kind not in WITHIN:
            raise InvalidOption(f"{self.why} and is read-only")

    def ready(self) -> None:
        """Do nothing: no change was begun."""

    proceed = keep = refuse = close = snapshot = flush = ready
