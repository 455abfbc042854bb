"""Ingests: changes of a graph by the parts of a source that the workers read, or this process where it numbers keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from mgraph.batch import TOLD, EdgeBatch
from mgraph.client.batches.mixed import of_steps, row_args
from mgraph.client.batches.updates import Updates
from mgraph.client.inputs.keyed_ingest import read_parts
from mgraph.client.inputs.source_parts import AsParts
from mgraph.client.reports.history import note_of_stop
from mgraph.client.reports.progress import Done, shown
from mgraph.client.reports.report import UpdateReport
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import MgraphError
from mgraph.failures import Recovered, with_place
from mgraph.tables.names import Names, warn_unused

__all__ = ["Ingest"]


class Ingest:
    """Applies sources to a graph, in steps.

    Parameters
    ----------
    updates : Updates
        The graph's changes.
    directory : Directory
    parts : AsParts
        Makes the parts of a source.
    """

    def __init__(self, updates: Updates, directory: Directory, parts: AsParts) -> None:
        self._updates, self._directory, self._parts = updates, directory, parts
        self._coordinator = directory.coordinator

    def run(self, source: Any, steps: int | None, names: Names, *, numbered: bool = False) -> list[Any]:
        """Apply a source that the workers read.

        In a graph with keys this process reads it, unless the ends are `numbered` already.
        """
        self._directory.check()

        # With keys, this process reads the parts, since it numbers the keys.
        if self._directory.keys is not None and not numbered:
            while True:
                with suppress(Recovered):
                    keys = lambda: self._directory.keys  # noqa: E731
                    parts = read_parts(source, steps, names, self._parts, keys)
                    break
            with self._shown():
                done = self._apply_parts(parts)
            self._updates.followed()
            return done

        # A loss continues the ingest after the committed steps, for as many ranks as before.
        size, before = len(self._coordinator.status.addresses), np.empty((0, len(TOLD)), np.int64)

        def ingest(now: Numbering) -> list[Any]:
            nonlocal before
            while True:
                try:
                    answers = self._call(source, steps, names, size, len(before), row_args(now))
                    _warn_left_out(answers)
                    return of_steps(now, answers, before)
                except Recovered as recovered:
                    before, now = np.concatenate([before, recovered.done]), self._directory.numbering

        with self._shown():
            done = self._directory.read(ingest)
        self._updates.history.batches("ingest", self._coordinator, *done, in_turn=True)
        self._updates.landed()
        self._updates.order_first()
        return done

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Show the progress of an ingest. A Ctrl-C gets a note with the committed steps."""
        caller, before = self._coordinator, self._coordinator.epoch
        now = lambda: Done(caller.reached - before, None, f"{caller.reached - before:,} steps committed")  # noqa: E731
        with note_of_stop(caller, "the ingest", "its steps up to that epoch are committed"), shown("ingest", now):
            yield

    def _call(
        self,
        source: Any,
        steps: int | None,
        names: Names,
        size: int,
        first: int,
        rows: dict[str, Any],
    ) -> list[dict[str, Any]]:
        """Ingest the steps of a source from `first` on, split for `size` ranks; each rank reads for some of these."""
        now = len(self._coordinator.status.addresses)
        seats = [rank * now // size for rank in range(size)]
        parts = self._parts(source, steps, names, seats)
        shares = [{"sources": mine} for mine in parts.seated(seats, now)]
        args = {"size": size, "first": first, **rows}
        return self._coordinator.call("ingest", args, shares)

    def _apply_parts(self, parts: Iterator[EdgeBatch]) -> list[UpdateReport]:
        """Apply the parts that this process reads, each as a batch."""
        done: list[UpdateReport] = []
        try:
            for part in parts:
                done.append(self._updates.apply(part, last=False))
        except MgraphError as error:
            raise with_place(error, f"step {len(done)} of the ingest, epoch {self._coordinator.epoch + 1}") from None
        return done


def _warn_left_out(answers: list[dict[str, Any]]) -> None:
    """Warn of unused columns of parts."""
    warn_unused(sorted({name for answer in answers for name in answer.get("left_out", ())}), "the source")
