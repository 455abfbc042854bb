"""What a store holds: the newest whole snapshot, and the attempts after it that the logs of all ranks keep.

An attempt that any log refuses is skipped; another is kept only if every rank's record of it is whole; at the first
that is not, the log ends. Epochs follow one another without a hole; changes that take none follow their epoch. How the
last term of the log ends is made durable by the description of the next term, which names the epoch at which it begins:
what is behind that is never read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mgraph.errors import InvalidOption, StoreError
from mgraph.log.manifest import StoredGraph, Term, chosen
from mgraph.log.records import AHEAD, WITHIN, Entry
from mgraph.log.scan import Scan
from mgraph.log.store import Store

__all__ = ["KeptChanges", "kept_changes", "scan_store"]


def scan_store(store: Store, epoch: int | None = None, repair: bool = False) -> StoredGraph:
    """What a store holds, up to `epoch` or to its end.

    Parameters
    ----------
    store : Store
    epoch : int, optional
    repair : bool
        Where a record is damaged that had been synced, take what is before it, and say what that gives up.

    Raises
    ------
    StoreError
        It is damaged, or of a version to come.
    InvalidOption
        It has no such epoch.
    """
    about, terms = store.about(), store.terms()
    store.check_archive()
    damaged: list[str] = []
    snapshots = store.archive.snapshots(damaged if repair else None)
    snapshot = chosen(snapshots, epoch)
    if snapshot is None and snapshots and not store.has_all_epochs(terms):
        oldest = snapshots[0]["epoch"]
        raise InvalidOption(f"{store.path} has epochs from {oldest} on, and {epoch} was asked for")
    begin = snapshot["epoch"] if snapshot else 0
    n, last = (snapshot or about)["n_vertices"], (snapshot or {}).get("last", "")
    found = StoredGraph(about, begin, n, snapshot, term=terms[-1].number if terms else 0, left=n, last=last)
    found.damaged = damaged
    found.notes += [f"{store.archive.at(name)} is damaged, and read is what is before it" for name in damaged]
    for at, term in enumerate(terms):
        if snapshot is not None and term.number < snapshot["term"]:
            continue
        end = min(terms[at + 1 :], key=lambda later: later.epoch, default=None)
        if end is not None and end.epoch < found.epoch:
            continue
        bounds = [one for one in (None if end is None else end.epoch, epoch) if one is not None]
        if found.epoch < min([term.epoch, *bounds]):
            _note_gap(store, term, found, repair)
            break
        places = snapshot["places"] if snapshot and snapshot["term"] == term.number else [0] * term.size
        scans = store.scans_of(term, places, repair)
        whole = _add_term(store, term, scans, end, min(bounds, default=None), found, repair)
        if not whole and end is not None:
            break
    if epoch is not None and found.epoch < epoch:
        raise InvalidOption(f"{store.path} has epochs up to {found.epoch}, and {epoch} was asked for")
    found.offsets = dict((found.snapshot or {}).get("offsets", {}))
    found.offsets.update(offset for _, offset in store.offsets_of([shares[0] for shares in found.shares]))
    return found


def _add_term(
    store: Store, term: Term, scans: list[Scan], end: Term | None, bound: int | None, found: StoredGraph, repair: bool
) -> bool:
    """Add what a term has after `found.epoch`, up to the epoch `bound`; whether it has all of that.

    `end` is the term that ends it, or None for the last.
    """
    has = kept_changes(scans, found.epoch, bound)
    problem = _problem(store, term, scans, has.epoch, bound, last=end is None)
    found.add(has.shares, has.epoch)
    if end is not None and found.epoch >= end.epoch and end.n_vertices not in (None, found.left):
        problem = _missing_removal(scans, found.epoch)
    if problem is not None and not repair:
        raise StoreError(
            f"{problem}; the store is whole up to epoch {has.epoch}; repair=True opens it there and gives up the rest"
        )
    if problem is not None:
        found.notes.append(f"{problem}: epochs after {has.epoch} are given up, {has.given_up} records or more")
    if end is None:
        found.tails.extend(one.last for one in scans if one.last is not None)
    return bound is None or (has.epoch >= bound and problem is None)


def _note_gap(store: Store, term: Term, found: StoredGraph, repair: bool) -> None:
    """Note that the epochs between what was found and the beginning of a term are nowhere; or raise it."""
    problem = f"{store.path}: a snapshot or a log with the epochs {found.epoch + 1} to {term.epoch} is missing"
    if not repair:
        raise StoreError(f"{problem}; restore it from a backup, or give up what follows with repair=True")
    found.notes.append(f"{problem}: epochs after {found.epoch} are given up")


def _missing_removal(scans: list[Scan], epoch: int) -> str:
    """That the logs of a term end without a change that belongs to the epoch at which the next term begins."""
    broken = next((one.broken for one in scans if one.broken is not None), None)
    return broken or f"{scans[0].last}: vertices that left in epoch {epoch} are not there"


def _problem(store: Store, term: Term, scans: list[Scan], epoch: int, bound: int | None, last: bool) -> str | None:
    """Why the logs of a term have less than was synced, if they do; else None."""
    if bound is not None and epoch >= bound:
        return None
    broken = next((one.broken for one in scans if one.broken is not None), None)
    missing = next((rank for rank, one in enumerate(scans) if not one.there), None)
    if broken is None and missing is not None and (any(one.entries for one in scans) or not last):
        broken = store.missing(term, missing)
    written = [entry for one in scans for entry in one.entries if not entry.mask & AHEAD]
    newest = max((entry.epoch + (entry.kind in WITHIN) for entry in written), default=0)
    if broken is None and (not last or (term.sync == "always" and newest > epoch + 1)):
        short = min(range(term.size), key=lambda rank: scans[rank].entries[-1].epoch if scans[rank].entries else 0)
        broken = f"{scans[short].last}: epoch {epoch + 1} was synced and is not there"
    return broken


# ---- what is kept of one term ----------------------------------------------------------------------------------------


@dataclass
class KeptChanges:
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


def kept_changes(scans: Sequence[Scan], first: int, last: int | None = None) -> KeptChanges:
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

    found = KeptChanges(first, refused=len(refused))

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
