"""A graph's store, from the user's side: its options, opening it, and what it reports. The workers do the rest."""

from __future__ import annotations

import logging
import math
import os
import time
import warnings
from dataclasses import dataclass
from typing import Any

from mgraph.checks import check_number, check_whole
from mgraph.client.caller import Caller
from mgraph.client.directory import Directory
from mgraph.client.numbering import Numbering
from mgraph.client.options import Options, fixed_order
from mgraph.client.parts import AsParts
from mgraph.client.place import Place, make_shards
from mgraph.errors import InvalidOption, StoreError
from mgraph.log.log import SYNCS
from mgraph.protocol import PATIENCE_SECONDS

__all__ = [
    "StoreReport",
    "Storing",
    "asked",
    "check_opening",
    "open_stored",
    "path_of",
    "place_of",
    "report_of",
    "split",
    "write",
    "write_snapshot",
]

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.05  #: between two questions whether a snapshot is written

Value = dict[str, Any]


@dataclass(frozen=True)
class Storing:
    """How a graph is stored. `DynamicGraph` documents each option."""

    path: str
    sync: str = "always"
    lag_bytes: int = 256 << 20
    lag_seconds: float = 1.0
    snapshot_bytes: int = 4 << 30
    retain: int = 2

    def __post_init__(self) -> None:
        if self.sync not in SYNCS:
            raise InvalidOption(f"sync {self.sync!r} is none of {', '.join(map(repr, SYNCS))}")
        if check_whole(self.lag_bytes, "lag_bytes") < 1:
            raise InvalidOption(f"lag_bytes is {self.lag_bytes}; at least 1 is needed")
        if not 0 < check_number(self.lag_seconds, "lag_seconds") < math.inf:
            raise InvalidOption(f"lag_seconds is {self.lag_seconds}; it must be a finite number of seconds above 0")
        check_whole(self.snapshot_bytes, "snapshot_bytes")
        check_whole(self.retain, "retain")

    @property
    def how(self) -> Value:
        """What the workers are told of it."""
        return {name: value for name, value in vars(self).items() if name != "path"}

    def create(self, coordinator: Caller, options: Options, n_vertices: int) -> None:
        """Make the store of a graph that was just made."""
        kind = _kind(options, n_vertices)
        coordinator.call("create_store", {"path": self.path, "kind": kind, **self.how}, connect=True)


KIND = ("structure", "weighted", "directed", "reverse", "grows")  #: the options that a store remembers
DEFAULTS = {"exchange": "auto", "device": "auto", "reserve": 0, "patience": PATIENCE_SECONDS}
OPENING = {*DEFAULTS, "structure", "reverse", "workers", "order", "balance"}  #: what `open` takes


def path_of(path: Any) -> str:
    """A store's path as the workers are told it; `InvalidOption` if it is none."""
    try:
        return os.path.abspath(os.fsdecode(os.fspath(path)))
    except TypeError:
        raise InvalidOption(f"store is {path!r}; it must be the path of a folder that all workers share") from None


LOGGING = ("lag_bytes", "lag_seconds", "snapshot_bytes", "retain")  #: the options of a store with defaults


def asked(store: Any, sync: str, logging: Value) -> Storing | None:
    """The store that a new graph is to have; None without one."""
    if unknown := sorted(set(logging) - set(LOGGING)):
        raise TypeError(f"DynamicGraph takes no argument {unknown[0]!r}")
    return None if store is None else Storing(path_of(store), sync, **logging)


def split(store: Any, sync: str, options: Value) -> tuple[Storing, Value]:
    """The options of `open`, those of the store and those of the graph."""
    mine = {name: options[name] for name in LOGGING if name in options}
    given = {name: options[name] for name in options if name not in mine}
    check_opening(given)
    return Storing(path_of(store), sync, **mine), given


def check_opening(given: Value) -> None:
    """Raise `InvalidOption` for an option that is not one of a graph that is opened."""
    if unknown := sorted(set(given) - OPENING):
        raise InvalidOption(f"option {unknown[0]!r} is none of {', '.join(sorted(OPENING))}")


def place_of(storing: Storing | None, epoch: int, newest: int) -> str:
    """The path of a store that has an epoch, by what was acknowledged."""
    if storing is None:
        raise InvalidOption("the graph has no store, so earlier epochs are gone")
    if check_whole(epoch, "epoch") > newest:
        raise InvalidOption(f"epoch is {epoch}; the last one is {newest}")
    return storing.path


def write_snapshot(coordinator: Caller, storing: Storing | None, wait: bool) -> int:
    """Write a snapshot; its epoch."""
    if storing is None:
        raise InvalidOption("the graph has no store, so there is no place for a snapshot; save(path) needs none")
    coordinator.call("snapshot")
    epoch = coordinator.epoch
    if wait:
        _written(coordinator)
    return epoch


def write(coordinator: Caller, options: Options, n_vertices: int, path: Any) -> None:
    """Write the graph, as it is, to a folder."""
    coordinator.call("save", {"path": path_of(path), "kind": _kind(options, n_vertices)})
    _written(coordinator)


def _written(coordinator: Caller) -> None:
    """Wait until a snapshot is written; `StoreError` if it was not."""
    busy = True
    while busy:
        time.sleep(POLL_SECONDS)
        answers = coordinator.call("writing")
        if problem := next((answer["problem"] for answer in answers if answer["problem"]), None):
            raise StoreError(f"graph {coordinator.graph}: the snapshot was not written: {problem}")
        busy = any(answer["busy"] for answer in answers)


def _kind(options: Options, n_vertices: int) -> Value:
    return {**{name: getattr(options, name) for name in KIND}, "n_vertices": n_vertices}


@dataclass(frozen=True)
class StoreReport:
    """The state of a graph's store.

    Attributes
    ----------
    path : str
    sync : str
    epoch : int
        The last epoch that was acknowledged.
    durable_epoch : int
        The last epoch that is on the disk on all ranks.
    nbytes : int
        Bytes of all files.
    segments : int
        Files of the log.
    logged : int
        Bytes that were logged since the graph was made or opened.
    lag : int
        Bytes of the log that are not on the disk yet.
    snapshots : tuple of int
        The epochs of the snapshots.
    offsets : dict of str to int
        The last place in each source, by `update`'s `offset`.
    """

    path: str
    sync: str
    epoch: int
    durable_epoch: int
    nbytes: int
    segments: int
    logged: int
    lag: int
    snapshots: tuple[int, ...]
    offsets: dict[str, int]


def report_of(coordinator: Caller, storing: Storing | None) -> StoreReport | None:
    """What the ranks say of the store; None without one. One call."""
    if storing is None:
        return None
    answers = coordinator.call("store")
    return StoreReport(
        storing.path,
        storing.sync,
        coordinator.epoch,
        min(answer["durable"] for answer in answers),
        answers[0]["nbytes"],
        answers[0]["segments"],
        sum(answer["logged"] for answer in answers),
        sum(answer["lag"] for answer in answers),
        tuple(answers[0]["snapshots"]),
        answers[0]["offsets"],
    )


def open_stored(
    place: Place,
    storing: Storing,
    given: Value,
    *,
    logged: bool,
    epoch: int | None = None,
    repair: bool = False,
) -> tuple[Directory, Options, AsParts]:
    """The graph that a store holds.

    Parameters
    ----------
    given : dict
        The user's options, checked here; those of the store where one is left out.
    logged : bool
        Whether what changes is logged.
    epoch : int, optional
        The graph as of this epoch, which is read-only.
    repair : bool

    Returns
    -------
    Directory, Options, AsParts
        As of `make_graph`.
    """
    epoch = None if epoch is None else check_whole(epoch, "epoch")
    fixed = fixed_order(given.get("order"))
    chosen = {**DEFAULTS, **{name: given[name] for name in (*DEFAULTS, *KIND) if name in given}}
    Options(**{**dict.fromkeys(KIND, False), "structure": "csr", **chosen})  # checked before anything is opened
    coordinator, parts = place.begin(chosen["patience"])
    try:
        own = logged and epoch is None
        asked = {"path": storing.path, "epoch": epoch, "repair": repair, "own": own}
        found = coordinator.call("survey", asked)[0]
        for note in found["notes"]:
            warnings.warn(f"the store is repaired: {note}", stacklevel=4)
        kept = {name: found["about"][name] for name in KIND}
        options = Options(**{**kept, **chosen})
        numbering = Numbering.make(found["n_vertices"], place.size, fixed, given.get("balance"))
        options = make_shards(place, coordinator, options, numbering)
        restored = {"epoch": found["epoch"], "repair": repair, "how": storing.how if own else None}
        coordinator.call("restore", {**restored, "read_only": epoch is not None}, connect=True)
    except BaseException:
        coordinator.close()
        raise
    logger.info("graph %s: %s opened at epoch %d", coordinator.graph, storing.path, coordinator.epoch)
    return Directory(coordinator, numbering), options, parts
