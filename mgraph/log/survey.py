"""What a store holds: the attempts that are kept, by what the logs of all ranks say.

An attempt that any log refuses is skipped; another is kept only if every rank's record of it is whole; at the first
that is not, the log ends. Epochs follow one another without a hole. How the last term of the log ends is made durable
by the description of the next term, which names the epoch at which it begins: what is behind that is never read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from mgraph.errors import StoreError
from mgraph.log.records import Entry
from mgraph.log.scan import Scan

__all__ = ["Kept", "kept"]


@dataclass
class Kept:
    """The changes that a term's logs have, whole.

    Attributes
    ----------
    shares : list of tuple of Entry
        For each epoch the records of all ranks, in rank order, which is stream order.
    epoch : int
        The last epoch.
    given_up : int
        How many records there are behind it that belong to no whole attempt.
    refused : int
        How many attempts were refused.
    """

    epoch: int
    shares: list[tuple[Entry, ...]] = field(default_factory=list)
    given_up: int = 0
    refused: int = 0


def kept(scans: Sequence[Scan], first: int, last: int | None = None) -> Kept:
    """What the logs of one term's ranks keep after epoch `first`, up to `last` or the end. O(records)."""
    tries: dict[int, dict[int, dict[int, Entry]]] = defaultdict(lambda: defaultdict(dict))
    refused: set[tuple[int, int]] = set()
    for rank, scan in enumerate(scans):
        for entry in scan.entries:
            if entry.kind == "refused":
                refused.add((entry.epoch, entry.attempt))
            else:
                tries[entry.epoch][entry.attempt][rank] = entry
    found = Kept(first, refused=len(refused))
    while last is None or found.epoch < last:
        epoch = found.epoch + 1
        whole = next((attempt for attempt in sorted(tries[epoch]) if (epoch, attempt) not in refused), None)
        if whole is None or len(tries[epoch][whole]) < len(scans):
            break
        shares = tries[epoch][whole]
        found.shares.append(tuple(shares[rank] for rank in range(len(scans))))
        found.epoch = epoch
        _check_alike(found.shares[-1])
    behind = (entry for scan in scans for entry in scan.entries if entry.kind != "refused")
    found.given_up = sum(entry.epoch > found.epoch and (entry.epoch, entry.attempt) not in refused for entry in behind)
    return found


def _check_alike(shares: tuple[Entry, ...]) -> None:
    first = shares[0]
    for entry in shares:
        if entry.kind != first.kind:
            raise StoreError(
                f"{entry.path}, offset {entry.at}: epoch {entry.epoch} is a {entry.kind!r} here and a {first.kind!r} "
                f"in {first.path}, offset {first.at}: the logs do not belong together"
            )
