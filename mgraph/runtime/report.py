"""What batches did, as their users are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.runtime.ingest import COUNTS

__all__ = ["UpdateReport", "of_batch", "of_steps"]


@dataclass(frozen=True)
class UpdateReport:
    """What a batch did, exactly, and how long it took.

    inserted + updated are the batch's inserts and deleted + missing its deletions, after repeats within it were
    dropped; an undirected edge counts once. `seconds` is the call's time; of a batch in a pipeline, the time from its
    call to its commit; of a step of an ingest, the longest time that a rank took for it.
    """

    inserted: int
    updated: int
    deleted: int
    missing: int
    epoch: int
    seconds: float


def of_batch(answers: Sequence[dict[str, Any]], seconds: float) -> UpdateReport:
    """The report of a batch from what the ranks answered."""
    inserted, updated, deleted, missing = (sum(int(answer[name]) for answer in answers) for name in COUNTS)
    return UpdateReport(inserted, updated, deleted, missing, answers[0]["epoch"], seconds)


def of_steps(answers: Sequence[dict[str, Any]]) -> list[UpdateReport]:
    """The reports of an ingest's steps from what the ranks answered; the last step is the epoch of the answers."""
    counts = sum(np.asarray(answer["counts"]) for answer in answers).reshape(-1, len(COUNTS))  # type: ignore[union-attr]
    seconds = np.max([answer["times"] for answer in answers], axis=0)
    first = answers[0]["epoch"] - len(seconds) + 1
    return [
        UpdateReport(inserted, updated, deleted, missing, first + step, float(seconds[step]))
        for step, (inserted, updated, deleted, missing) in enumerate(counts.tolist())
    ]
