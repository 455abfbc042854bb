"""What a store holds: the attempts that are kept, by what the logs of all ranks say.

An attempt that any log refuses is skipped; another is kept only if every rank's record of it is whole; at the first
that is not, the log ends. Epochs follow one another without a hole; changes that take none follow their epoch. How the
last term of the log ends is made durable by the description of the next term, which names the epoch at which it begins:
what is behind that is never read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mgraph.errors import StoreError
from mgraph.log.records import WITHIN, Entry
from mgraph.log.scan import Scan

__all__ = ["Kept", "kept"]


@dataclass
class Kept:
    """The changes that a term's logs have, whole.

    Attributes
    ----------
    shares : list of tuple of Entry
        For each change the records of all ranks, in rank order, which is stream order.
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


Tries = dict[int, dict[int, Entry]]  #: by attempt, the ranks' records


def kept(scans: Sequence[Scan], first: int, last: int | None = None) -> Kept:
    """What the logs of one term's ranks keep after epoch `first`, up to `last` or the end. O(records).

    What belongs to `first` is among it, since a log may begin with that.
    """
    tries: dict[int, Tries] = defaultdict(lambda: defaultdict(dict))
    within: dict[int, Tries] = defaultdict(lambda: defaultdict(dict))
    refused: set[tuple[int, int]] = set()
    for rank, scan in enumerate(scans):
        for entry in scan.entries:
            if entry.kind == "refused":
                refused.add((entry.epoch, entry.attempt))
            else:
                (within if entry.kind in WITHIN else tries)[entry.epoch][entry.attempt][rank] = entry

    def attempts(of: dict[int, Tries], epoch: int) -> Iterator[dict[int, Entry]]:
        tries = of.get(epoch, {})
        return (tries[attempt] for attempt in sorted(tries) if (epoch, attempt) not in refused)

    found = Kept(first, refused=len(refused))

    def keep(shares: dict[int, Entry]) -> bool:
        """Keep a change, if all ranks' records of it are whole."""
        if len(shares) == len(scans):
            found.shares.append(tuple(shares[rank] for rank in range(len(scans))))
            _check_alike(found.shares[-1])
        return len(shares) == len(scans)

    while all(keep(shares) for shares in attempts(within, found.epoch)) and (last is None or found.epoch < last):
        if not keep(next(attempts(tries, found.epoch + 1), {})):
            break
        found.epoch += 1
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
