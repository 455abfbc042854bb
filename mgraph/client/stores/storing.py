"""The user's side of a graph's store: its options and its reports."""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mgraph.checks import check_number, check_whole, is_choice
from mgraph.client.calls.caller import Caller
from mgraph.client.options import GraphOptions, LogOptions, Options, PlaceOptions, StoreOptions
from mgraph.client.vertices.directory import Directory
from mgraph.errors import CapacityError, InvalidOption, StoreError
from mgraph.facade import hint, unknown_argument
from mgraph.failures import Recovered
from mgraph.log.local_disks import whole
from mgraph.log.log import SYNCS
from mgraph.log.remote import is_remote
from mgraph.protocol import PATIENCE_SECONDS

__all__ = [
    "StoreReport",
    "Storing",
    "check_opening",
    "path_of",
    "place_of",
    "report_of",
    "split",
    "store_options",
    "surveyed",
    "write",
    "write_snapshot",
]

POLL_SECONDS = 0.05  #: time between two queries for the end of a snapshot

Value = dict[str, Any]


@dataclass(frozen=True)
class Storing:
    """The options of a graph's store. `DynamicGraph` documents each option."""

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
        if not (self.recover is None or is_choice(self.recover, ("auto",))):
            raise InvalidOption(f'recover is {self.recover!r}; it must be "auto", or None')
        if check_whole(self.max_recoveries, "max_recoveries") < 1:
            raise InvalidOption(f"max_recoveries is {self.max_recoveries}; at least 1 is needed")
        if not is_choice(self.disks, ("shared", "local")):
            raise InvalidOption(f'disks is {self.disks!r}; it must be "shared" or "local"')
        if not is_choice(self.sync, SYNCS):
            raise InvalidOption(f"sync {self.sync!r} is none of {', '.join(map(repr, SYNCS))}")
        if check_whole(self.lag_bytes, "lag_bytes") < 1:
            raise InvalidOption(f"lag_bytes is {self.lag_bytes}; at least 1 is needed")
        if not 0 < check_number(self.lag_seconds, "lag_seconds") < math.inf:
            raise InvalidOption(f"lag_seconds is {self.lag_seconds}; it must be a finite number of seconds above 0")
        check_whole(self.snapshot_bytes, "snapshot_bytes")
        check_whole(self.retain, "retain")

    @property
    def how(self) -> Value:
        """The options that the workers need."""
        return {name: getattr(self, name) for name in ("sync", "lag_bytes", "lag_seconds", "snapshot_bytes", "retain")}

    def create(self, coordinator: Caller, options: Options, n_vertices: int) -> None:
        """Make the store of a new graph."""
        kind = _kind(options, n_vertices) | ({} if self.snapshots is None else {"snapshots": self.snapshots})
        if self.disks == "shared":
            coordinator.call("create_store", {"path": self.path, "kind": kind, **self.how})
            return

        # Each host has a part of the store: find out which ranks share a disk.
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
    """Return an absolute path for the workers, or a URL of fsspec unless it is for a `log`.

    A path that begins with a variable of the workers' environments is left as it is; ``~`` is this user's home here.
    Raises `InvalidOption` for other values.
    """
    try:
        text = os.fsdecode(os.fspath(path))
        os.fsencode(text)
    except (TypeError, UnicodeEncodeError):
        text = ""
    if not text or "\0" in text:  # an empty one would be the current folder
        raise InvalidOption(f"store is {path!r}; it must be the path of a folder that all workers share")
    if log and is_remote(text):
        raise InvalidOption(
            f"store is {text}: a log needs a file system with fsync and locks; snapshots= takes such a place"
        )
    if is_remote(text) or text.startswith("$"):
        return text
    try:
        return os.path.abspath(os.path.expanduser(text))
    except FileNotFoundError:
        raise InvalidOption(f"store is {text!r}, and the current folder was removed: give an absolute path") from None


LOGGING = tuple(LogOptions.__annotations__)  #: the options of a store that `open` takes


def store_options(store: Any, sync: str, logging: StoreOptions) -> Storing | None:
    """Return the store of a new graph; None without a store."""
    # Misspelt options end up here, since all other options have names.
    if unknown := sorted(set(logging) - set(StoreOptions.__annotations__)):
        names = [*GraphOptions.__annotations__, "client", "n_vertices"]
        raise unknown_argument(unknown[0], names)
    if store is None:
        options = {**logging, "sync": None if is_choice(sync, ("always",)) else sync}
        for name in (name for name, value in options.items() if value is not None):
            raise InvalidOption(f"{name} is {options[name]!r} and there is no store: it is an option of store=")
        return None
    if logging.get("snapshots") is not None:
        logging = {**logging, "snapshots": path_of(logging["snapshots"])}
    return Storing(path_of(store, log=True), sync, **logging)


def split(store: Any, sync: str, options: Mapping[str, Any]) -> tuple[Storing, Value]:
    """Split the options of `open` into those of the store and those of the graph."""
    store_options = {name: options[name] for name in LOGGING if name in options}
    graph_options = {name: options[name] for name in options if name not in store_options}
    check_opening(graph_options, (*LOGGING, "client", "epoch", "repair", "store", "sync"))
    return Storing(path_of(store, log=True), sync, **store_options), graph_options


def surveyed(coordinator: Caller, path: str, epoch: int | None, repair: bool, own: bool) -> Value:
    """Scan a store for a new graph, its writer if `own`."""
    if own:  # first: a graph that ends just now may still write records
        coordinator.call("claim", {"path": path})

    # All records must be in files before any rank reads them.
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

    # Parts of the store are on local disks: merge the scans of all hosts.
    upto = {"epoch": epoch, "repair": repair}
    scanned = coordinator.call("scan_parts", {"sees": [answer["sees"] for answer in answers], **upto})
    return coordinator.call("survey_parts", {"scans": [bytes(scan["scans"]) for scan in scanned], **upto})[0]


def check_opening(given: Mapping[str, Any], others: Sequence[str] = ()) -> None:
    """Raise `InvalidOption` for options that an opened graph does not take; the call also takes `others`."""
    if unknown := sorted(set(given) - set(PlaceOptions.__annotations__)):
        names = sorted({*PlaceOptions.__annotations__, *others})
        raise InvalidOption(f"option {unknown[0]!r} is none of {', '.join(names)}{hint(unknown[0], names)}")


def place_of(storing: Storing | None, epoch: int, newest: int) -> str:
    """Return the path of a store with an acknowledged epoch."""
    if storing is None:
        raise InvalidOption("the graph has no store, so earlier epochs are gone")
    if check_whole(epoch, "epoch") > newest:
        raise InvalidOption(f"epoch is {epoch}; the last one is {newest}")
    return storing.path


def write_snapshot(coordinator: Caller, storing: Storing | None, wait: bool) -> int:
    """Write a snapshot and return its epoch."""
    if storing is None:
        raise InvalidOption("the graph has no store, so there is no place for a snapshot; save(path) needs none")

    # A snapshot that the graph takes by itself must end first.
    while True:
        with suppress(Recovered):  # after a loss, the snapshot is written again
            if wait:
                _idle(coordinator)
            coordinator.call("snapshot")
            epoch = coordinator.epoch
            if wait:
                _written(coordinator)
            return epoch


def write(now: Directory, options: Options, path: Any) -> None:
    """Write the current graph to a folder."""
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
    """Wait until no snapshot is being written; the graph also writes some by itself."""
    answers = coordinator.call("writing")
    while any(answer["busy"] for answer in answers):
        time.sleep(POLL_SECONDS)
        answers = coordinator.call("writing", {}, _problems_of(answers))


def _problems_of(answers: Sequence[Value]) -> list[Value]:
    """Return what to tell each rank of a part of the snapshot that another rank does not write.

    A rank without its part ends its attempts to say so; the others are told when no rank attempts that any more.
    """
    problem = next((answer["problem"] for answer in answers if answer["problem"]), None)
    attempting = any(answer["busy"] and answer["problem"] for answer in answers)
    told = [problem is not None and (not attempting or answer["problem"]) for answer in answers]
    return [{"problem": problem} if tell else {} for tell in told]


def _written(coordinator: Caller) -> None:
    """Wait until a snapshot is written; raise `StoreError` if this failed, `CapacityError` for want of memory."""
    busy = True
    while busy:
        time.sleep(POLL_SECONDS)
        answers = coordinator.call("writing")
        if problem := next((answer["problem"] for answer in answers if answer["problem"]), None):
            error = CapacityError if any(answer.get("lacked") for answer in answers) else StoreError
            raise error(f"graph {coordinator.status.graph}: the snapshot was not written: {problem}")
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
        The last acknowledged epoch.
    durable_epoch : int
        The last epoch on the disks of all ranks.
    nbytes : int
        The bytes of all files.
    segments : int
        The number of files of the log.
    logged : int
        The bytes that were logged since the graph was made or opened.
    lag : int
        The bytes of the log that are not on the disk yet.
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
    """Return the state of the store; None without a store. One call."""
    if storing is None:
        return None
    answers = coordinator.call("store")
    # Ranks that share a disk count its files once.
    folders = {
        tuple(answer["seen"]["folder"]): answer["seen"] for answer in answers if "seen" in answer
    }.values() or answers[:1]

    parts = whole([mark for answer in answers for mark in answer.get("marks", ())])
    return StoreReport(
        storing.path,
        storing.sync,
        coordinator.epoch,
        min(answer["durable"] for answer in answers),
        sum(folder["nbytes"] for folder in folders),
        sum(folder["segments"] for folder in folders),
        sum(answer["logged"] for answer in answers),
        sum(answer["lag"] for answer in answers),
        (*answers[0]["snapshots"], *(folder["epoch"] for folder in parts)),
        answers[0]["offsets"],
        answers[0]["disks"],
    )
