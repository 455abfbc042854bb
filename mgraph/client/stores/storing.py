"""A graph's store, from the user's side: its options, and what it reports. The workers do the rest."""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mgraph.checks import check_number, check_whole
from mgraph.client.calls.caller import Caller
from mgraph.client.options import GraphOptions, LogOptions, Options, PlaceOptions, StoreOptions
from mgraph.client.vertices.directory import Directory
from mgraph.errors import InvalidOption, StoreError
from mgraph.facade import hint
from mgraph.failures import Recovered
from mgraph.log.local import whole
from mgraph.log.log import SYNCS
from mgraph.log.remote import is_remote
from mgraph.protocol import PATIENCE_SECONDS

__all__ = [
    "StoreReport",
    "Storing",
    "asked",
    "check_opening",
    "path_of",
    "place_of",
    "report_of",
    "split",
    "surveyed",
    "write",
    "write_snapshot",
]

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
    recover: str | None = None
    max_recoveries: int = 3
    snapshots: str | None = None
    disks: str = "shared"

    def __post_init__(self) -> None:
        if self.recover not in (None, "auto"):
            raise InvalidOption(f'recover is {self.recover!r}; it must be "auto", or None')
        if check_whole(self.max_recoveries, "max_recoveries") < 1:
            raise InvalidOption(f"max_recoveries is {self.max_recoveries}; at least 1 is needed")
        if self.disks not in ("shared", "local"):
            raise InvalidOption(f'disks is {self.disks!r}; it must be "shared" or "local"')
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
        return {name: getattr(self, name) for name in ("sync", "lag_bytes", "lag_seconds", "snapshot_bytes", "retain")}

    def create(self, coordinator: Caller, options: Options, n_vertices: int) -> None:
        """Make the store of a graph that was just made."""
        kind = _kind(options, n_vertices) | ({} if self.snapshots is None else {"snapshots": self.snapshots})
        if self.disks == "shared":
            coordinator.call("create_store", {"path": self.path, "kind": kind, **self.how})
            return
        sees = [answer["sees"] for answer in coordinator.call("new_parts", {"path": self.path})]
        new = {"kind": kind | {"disks": self.disks}, "store": uuid.uuid4().hex, "sees": sees}
        coordinator.call("create_parts", {**new, **self.how})


#: the options that a store remembers
KIND = (
    "structure", "weighted", "directed", "reverse", "grows", "combine", "keys", "times", "window", "window_edges",
    "drop_isolated",
)  # fmt: skip
DEFAULTS = {"exchange": "auto", "device": "auto", "reserve": 0, "patience": PATIENCE_SECONDS}


def path_of(path: Any, log: bool = False) -> str:
    """A path as the workers are told it, or a URL of fsspec where no `log` is to be; `InvalidOption` if it is none.

    A path that begins with a variable of the workers' environments is left as it is; ``~`` is this user's home here.
    """
    try:
        text = os.fsdecode(os.fspath(path))
    except TypeError:
        text = ""
    if not text:  # which would be the current folder
        raise InvalidOption(f"store is {path!r}; it must be the path of a folder that all workers share")
    if log and is_remote(text):
        raise InvalidOption(
            f"store is {text}: a log needs a file system with fsync and locks; snapshots= takes such a place"
        )
    return text if is_remote(text) or text.startswith("$") else os.path.abspath(os.path.expanduser(text))


LOGGING = tuple(LogOptions.__annotations__)  #: the options of a store that `open` takes


def asked(store: Any, sync: str, logging: StoreOptions) -> Storing | None:
    """The store that a new graph is to have; None without one."""
    if unknown := sorted(set(logging) - set(StoreOptions.__annotations__)):
        known = [*GraphOptions.__annotations__, "client", "n_vertices"]
        raise TypeError(f"DynamicGraph takes no argument {unknown[0]!r}{hint(unknown[0], known)}")
    if store is None:
        given = {**logging, "sync": None if sync == "always" else sync}
        for name in (name for name, value in given.items() if value is not None):
            raise InvalidOption(f"{name} is {given[name]!r} and there is no store: it is an option of store=")
        return None
    if logging.get("snapshots") is not None:
        logging = {**logging, "snapshots": path_of(logging["snapshots"])}
    return Storing(path_of(store, log=True), sync, **logging)


def split(store: Any, sync: str, options: Mapping[str, Any]) -> tuple[Storing, Value]:
    """The options of `open`, those of the store and those of the graph."""
    mine = {name: options[name] for name in LOGGING if name in options}
    given = {name: options[name] for name in options if name not in mine}
    check_opening(given, (*LOGGING, "client", "epoch", "repair", "store", "sync"))
    return Storing(path_of(store, log=True), sync, **mine), given


def surveyed(coordinator: Caller, path: str, epoch: int | None, repair: bool, own: bool) -> Value:
    """What a store holds, for a graph that is to be made from it, and is to write it if `own`."""
    if own:  # first: a graph that is about to end may have records that are not in its files yet
        coordinator.call("claim", {"path": path})
    coordinator.call("finish", {"path": path, "own": own})  # on all hosts, before any rank reads
    answers = coordinator.call("survey", {"path": path, "epoch": epoch, "repair": repair})
    if "about" in answers[0]:
        return answers[0]
    addresses = coordinator.status.addresses
    if shared := [at for at, answer in zip(addresses, answers, strict=True) if "sees" not in answer]:
        raise StoreError(
            f"{path} holds a store that the worker at {shared[0]} sees, and the one at {addresses[0]} does not; it is "
            "a folder that all workers must share"
        )
    upto = {"epoch": epoch, "repair": repair}
    scanned = coordinator.call("scan_parts", {"sees": [answer["sees"] for answer in answers], **upto})
    return coordinator.call("survey_parts", {"scans": [bytes(one["scans"]) for one in scanned], **upto})[0]


def check_opening(given: Mapping[str, Any], others: Sequence[str] = ()) -> None:
    """Raise `InvalidOption` for an option that is not one of a graph that is opened; the call takes `others`, too."""
    if unknown := sorted(set(given) - set(PlaceOptions.__annotations__)):
        known = sorted({*PlaceOptions.__annotations__, *others})
        raise InvalidOption(f"option {unknown[0]!r} is none of {', '.join(known)}{hint(unknown[0], known)}")


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
    while True:
        with suppress(Recovered):  # what was being written when a worker was lost is written again
            if wait:
                _idle(coordinator)
            coordinator.call("snapshot")
            epoch = coordinator.status.epoch
            if wait:
                _written(coordinator)
            return epoch


def write(now: Directory, options: Options, path: Any) -> None:
    """Write the graph, as it is, to a folder."""
    coordinator, n, where = now.coordinator, now.n_vertices, path_of(path)
    while True:
        with suppress(Recovered):
            _idle(coordinator)
            with now.still() as table:
                shares: list[Value] = [{} for _ in coordinator.status.addresses]
                shares[0]["keys"] = None if table is None else table.names.packed(0, n)
                coordinator.call("save", {"path": where, "kind": _kind(options, n)}, shares)
            return _written(coordinator)


def _idle(coordinator: Caller) -> None:
    """Wait until no snapshot is being written, as the graph takes them by itself, too."""
    while any(answer["busy"] for answer in coordinator.call("writing")):
        time.sleep(POLL_SECONDS)


def _written(coordinator: Caller) -> None:
    """Wait until a snapshot is written; `StoreError` if it was not."""
    busy = True
    while busy:
        time.sleep(POLL_SECONDS)
        answers = coordinator.call("writing")
        if problem := next((answer["problem"] for answer in answers if answer["problem"]), None):
            raise StoreError(f"graph {coordinator.status.graph}: the snapshot was not written: {problem}")
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
    disks : str
        "shared" if all workers share the folder, or "local".
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
    disks: str = "shared"


def report_of(coordinator: Caller, storing: Storing | None) -> StoreReport | None:
    """What the ranks say of the store; None without one. One call."""
    if storing is None:
        return None
    answers = coordinator.call("store")
    seen = {tuple(one["seen"]["folder"]): one["seen"] for one in answers if "seen" in one}.values() or answers[:1]
    parts = whole([mark for answer in answers for mark in answer.get("marks", ())])
    return StoreReport(
        storing.path,
        storing.sync,
        coordinator.status.epoch,
        min(answer["durable"] for answer in answers),
        sum(one["nbytes"] for one in seen),
        sum(one["segments"] for one in seen),
        sum(answer["logged"] for answer in answers),
        sum(answer["lag"] for answer in answers),
        (*answers[0]["snapshots"], *(one["epoch"] for one in parts)),
        answers[0]["offsets"],
        answers[0]["disks"],
    )
