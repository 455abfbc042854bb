"""Recovery scan of a store: its newest whole snapshot, and the later attempts that the logs of all ranks keep.

An attempt that any log refuses is skipped. Every other attempt is kept if every rank's record of it is whole; the first
that is not ends the log. Epochs have no gaps, and changes without an epoch follow the epoch they belong to. The
description of the next term fixes the end of the term before: it names the epoch at which it begins, and records after
that epoch are never read again.

The heads name the newest term, and how far its logs were synced. A missing term or log, or one that is cut before that
place, is an error, since a crash cannot cause it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mgraph.errors import InvalidOption, MgraphError, StoreError
from mgraph.log.manifest import Head, StoredGraph, Term, chosen, term_of
from mgraph.log.records import AHEAD, WITHIN, Entry
from mgraph.log.scan import Scan
from mgraph.log.store import Store

__all__ = ["KeptChanges", "kept_changes", "scan_store"]


def scan_store(store: Store, epoch: int | None = None, repair: bool = False) -> StoredGraph:
    """Return the graph in a store, up to `epoch` or to its end.

    Parameters
    ----------
    store : Store
    epoch : int, optional
    repair : bool
        If the store is damaged, return the graph before the damage, and note what is given up.

    Raises
    ------
    StoreError
        The store is damaged, a part of it is missing, or it is of a version to come.
    InvalidOption
        The store has no such epoch.
    """
    try:
        return _scan_store(store, epoch, repair)
    except MgraphError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # The checksum is right, so another program has written the file.
        raise StoreError(
            f"{store.path}: a file has what mgraph does not write ({type(error).__name__}: {error}); restore it from a "
            "backup"
        ) from error


def _scan_store(store: Store, epoch: int | None, repair: bool) -> StoredGraph:
    """Scan a store like `scan_store`. Descriptions with wrong fields or types raise errors of any kind."""
    # Read the heads first: a graph may write the store meanwhile, and writes its head after what the head names.
    about = store.about()
    damaged: list[str] = []
    aside: list[str] = []
    heads = store.heads(aside if repair else None)
    terms = store.terms(aside if repair else None)
    undescribed = store.undescribed()
    store.check_archive()
    snapshots = store.archive.snapshots(damaged if repair else None)
    notes = [f"{store.archive.at(name)} is damaged, and what is before it is read" for name in damaged]
    notes += [f"{store.at(name)} is damaged or misnamed" for name in aside]

    # Check that the descriptions of all terms are there.
    first = snapshots[0]["term"] if snapshots else 0
    undescribed = [name for name in undescribed if _number(name) >= first]  # earlier ones are leftovers
    for problem in _missing_terms(store, heads, terms, undescribed):
        if not repair:
            message = f"{problem}; restore it from a backup, or give up what that term logged with repair=True"
            raise StoreError(message, reason=store.missing_reason)
        notes.append(f"{problem}: what that term logged is given up")
    if not terms and not snapshots:
        _check_saved(store)

    # Begin with the newest snapshot at or before the epoch.
    snapshot = chosen(snapshots, epoch)
    if snapshot is None and snapshots and not store.has_all_epochs(terms):
        oldest = snapshots[0]["epoch"]
        raise InvalidOption(f"{store.path} has epochs from {oldest} on, and {epoch} was asked for")
    start: dict[str, Any] = snapshot or {"epoch": 0, "n_vertices": about["n_vertices"]}
    stored = StoredGraph(about, start["epoch"], start["n_vertices"], snapshot, left=start["n_vertices"])
    stored.last, stored.offsets = start.get("last", ""), dict(start.get("offsets", {}))
    stored.damaged, stored.notes, stored.aside = damaged, notes, [*aside, *undescribed]
    stored.term = max([store.last_term, *(head.term.number for head in heads), *map(_number, stored.aside)])

    # Add what each term has after it.
    for at, term in enumerate(terms):
        if snapshot is None or term.number >= snapshot["term"]:
            end = min(terms[at + 1 :], key=lambda later: later.epoch, default=None)
            if not _add_term(store, term, end, heads, stored, epoch, repair):
                break
    if epoch is not None and stored.epoch < epoch:
        raise InvalidOption(f"{store.path} has epochs up to {stored.epoch}, and {epoch} was asked for")
    stored.offsets.update(offset for _, offset in store.offsets_of([shares[0] for shares in stored.shares]))
    return stored


def _number(name: str) -> int:
    """Return the number of the term that a name in the store belongs to; 0 if none."""
    return term_of(name.partition("/")[0].partition(".")[0]) or 0


def _missing_terms(store: Store, heads: list[Head], terms: list[Term], undescribed: list[str]) -> Iterator[str]:
    """Yield why terms are missing."""
    # A log holds records, and its term has no description.
    for name in undescribed:
        yield f"{store.missing_term(_number(name))}, and {store.at(name)} holds records"

    # The newest head names a term that has none, or has another one.
    newest = max(heads, key=lambda head: head.term.number, default=None)
    if newest is None or any(_number(name) == newest.term.number for name in undescribed):
        return
    term = next((term for term in terms if term.number == newest.term.number), None)
    if term is None:
        yield f"{store.missing_term(newest.term.number)}: the head of rank {newest.rank} names it"
    elif term != newest.term:
        yield f"{store.path}: the description of term {term.number} is not the one that the head of a rank names"


def _check_saved(store: Store) -> None:
    """Raise `StoreError` if a saved graph lacks the description of its snapshot."""
    archive = store.archive
    for name in archive.names():
        if name.startswith("snapshot-") and not name.endswith((".json", ".tmp", ".damaged")):
            raise StoreError(f"{archive.at(name)}.json is missing, and its files are there: restore it from a backup")


def _add_term(
    store: Store, term: Term, end: Term | None, heads: list[Head], stored: StoredGraph, epoch: int | None, repair: bool
) -> bool:
    """Add the changes of a term after `stored.epoch`, up to `epoch`.

    Returns False if later terms cannot be read.

    `end` is the term that ends this one, or None for the last.
    """
    if end is not None and end.epoch < stored.epoch:
        return True
    bounds = [bound for bound in (None if end is None else end.epoch, epoch) if bound is not None]
    bound = min(bounds, default=None)
    snapshot = stored.snapshot
    if (gap := _gap(store, term, stored, bounds)) is not None:
        if not repair:
            raise StoreError(f"{gap}; restore it from a backup, or give up what follows with repair=True")
        stored.notes.append(f"{gap}: epochs after {stored.epoch} are given up")
        return False

    # Scan the logs from the snapshot's places on, if it is of this term.
    places = snapshot["places"] if snapshot and snapshot["term"] == term.number else [0] * term.size
    scans = store.scans_of(term, places, repair)
    acknowledged = max((head.epoch for head in heads if head.term == term), default=0)
    kept = kept_changes(scans, stored.epoch, bound, max(acknowledged, 0 if end is None else end.epoch))
    problem, reason = _problem(store, term, scans, kept.epoch, bound, acknowledged, last=end is None)
    stored.add(kept.shares, kept.epoch)
    if end is not None and stored.epoch >= end.epoch and end.n_vertices not in (None, stored.left):
        problem, reason = _missing_removal(store, term, scans, stored.epoch), None

    # Raise the problem, or note what is given up.
    if problem is not None and not repair:
        message = f"{problem}; the store is whole up to epoch {kept.epoch}; repair=True opens it there"
        raise StoreError(f"{message} and gives up the rest", reason=reason)
    if problem is not None:
        stored.notes.append(f"{problem}: epochs after {kept.epoch} are given up, {kept.given_up} records or more")
    if end is None:
        stored.unsynced.extend(scan for scan in scans if scan.last is not None)
    return end is None or bound is None or (kept.epoch >= bound and problem is None)


def _gap(store: Store, term: Term, stored: StoredGraph, bounds: Sequence[int]) -> str | None:
    """Return why epochs are missing before a term; None if none are."""
    if stored.epoch < min([term.epoch, *bounds]):
        return f"{store.path}: a snapshot or a log with the epochs {stored.epoch + 1} to {term.epoch} is missing"

    # Or removals of vertices are missing, which belong to the epoch of the snapshot.
    inside = stored.snapshot is not None and stored.snapshot["term"] == term.number
    if not inside and stored.epoch == term.epoch and term.n_vertices not in (None, stored.left):
        return f"{store.path}: a snapshot or a log is missing, with vertices that left in epoch {stored.epoch}"
    return None


def _missing_removal(store: Store, term: Term, scans: list[Scan], epoch: int) -> str:
    """Return the message that a change is missing, of the epoch at which the next term begins."""
    broken = next((scan.broken for scan in scans if scan.broken is not None), None)
    missing = next((rank for rank, scan in enumerate(scans) if not scan.exists), None)
    if broken is None and missing is not None:
        broken = store.missing(term, missing)
    return broken or f"{scans[0].last}: vertices that left in epoch {epoch} are not there"


def _problem(
    store: Store, term: Term, scans: list[Scan], epoch: int, bound: int | None, acknowledged: int, last: bool
) -> tuple[str | None, Literal["unseen"] | None]:
    """Return why the logs of a term have less than was synced, and the error's reason; None if they have it all."""
    # Nothing is missing up to the bound, or a record is damaged.
    if bound is not None and epoch >= bound:
        return None, None
    broken = next((scan.broken for scan in scans if scan.broken is not None), None)
    if broken is not None:
        return broken, None

    # A log is missing.
    begun = not last or any(scan.entries for scan in scans)
    for rank, scan in enumerate(scans):
        if not scan.exists and (begun or store.must_exist(term, rank)):
            return store.missing(term, rank), store.missing_reason

    # An epoch is missing: a later one was written after it, or all ranks had it on their disks.
    written = [entry for scan in scans for entry in scan.entries if not entry.mask & AHEAD]
    newest = max((entry.epoch + (entry.kind in WITHIN) for entry in written), default=0)
    if not last or acknowledged > epoch or (term.sync == "always" and newest > epoch + 1):
        refused = {(entry.epoch, entry.attempt) for scan in scans for entry in scan.entries if entry.kind == "refused"}
        short = min(range(term.size), key=lambda rank: _last_change(scans[rank], refused))
        where = scans[short].last or store.log_folder(term.number, short)
        return f"{where}: epoch {epoch + 1} was synced and is not there", None
    return None, None


def _last_change(scan: Scan, refused: set[tuple[int, int]]) -> tuple[int, bool, int]:
    """Return the last change of a log that was not refused: its epoch, whether it is within it, and its attempt."""
    changes = [entry for entry in scan.entries if entry.kind != "refused"]
    kept = [entry for entry in changes if (entry.epoch, entry.attempt) not in refused]
    return max(((entry.epoch, entry.kind in WITHIN, entry.attempt) for entry in kept), default=(0, False, 0))


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
        The number of later records, which belong to no whole attempt.
    refused : int
        The number of attempts that were refused.
    """

    epoch: int
    shares: list[tuple[Entry, ...]] = field(default_factory=list)
    given_up: int = 0
    refused: int = 0


Tries = dict[int, dict[int, Entry]]  #: the ranks' records by attempt


def kept_changes(scans: Sequence[Scan], first: int, last: int | None = None, sure: int = 0) -> KeptChanges:
    """Return the changes that a term's logs keep after epoch `first`, up to `last`. O(records).

    Changes that belong to `first` are included. A change after epoch `sure` whose refusal may be damaged counts as
    refused.
    """
    # Group the records by epoch and attempt.
    tries: dict[int, Tries] = defaultdict(lambda: defaultdict(dict))
    within: dict[int, Tries] = defaultdict(lambda: defaultdict(dict))
    refused: set[tuple[int, int]] = set()
    for rank, scan in enumerate(scans):
        for entry in scan.entries:
            if entry.kind == "refused":
                refused.add((entry.epoch, entry.attempt))
            else:
                (within if entry.kind in WITHIN else tries)[entry.epoch][entry.attempt][rank] = entry

    refused.update(scan.undecided for scan in scans if scan.undecided is not None and scan.undecided[0] > sure)

    def attempts(of: dict[int, Tries], epoch: int) -> Iterator[dict[int, Entry]]:
        tries = of.get(epoch, {})
        return (tries[attempt] for attempt in sorted(tries) if (epoch, attempt) not in refused)

    kept = KeptChanges(first, refused=len(refused))

    def keep(shares: dict[int, Entry]) -> bool:
        """Keep a change, if all ranks' records of it are whole."""
        if len(shares) == len(scans):
            kept.shares.append(tuple(shares[rank] for rank in range(len(scans))))
            _check_alike(kept.shares[-1])
        return len(shares) == len(scans)

    # Keep one epoch after another: the changes that belong to it, then the first attempt at the next.
    while all(keep(shares) for shares in attempts(within, kept.epoch)) and (last is None or kept.epoch < last):
        if not keep(next(attempts(tries, kept.epoch + 1), {})):
            break
        kept.epoch += 1

    # Count the later records.
    written = [entry for scan in scans for entry in scan.entries if entry.kind != "refused"]
    kept.given_up = sum(entry.epoch > kept.epoch and (entry.epoch, entry.attempt) not in refused for entry in written)
    return kept


def _check_alike(shares: tuple[Entry, ...]) -> None:
    first = shares[0]
    for entry in shares:
        if entry.kind != first.kind:
            raise StoreError(
                f"{entry.path}, offset {entry.at}: epoch {entry.epoch} is a {entry.kind!r} here and a {first.kind!r} "
                f"in {first.path}, offset {first.at}: the logs do not belong together"
            )
