"""Open a graph from its store: for a user, and again after a worker was lost."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.batch import TOLD
from mgraph.checks import check_whole
from mgraph.client.batches.windows import leave_isolated
from mgraph.client.calls.caller import Caller
from mgraph.client.creation import place as places
from mgraph.client.creation.place import Place, make_shards
from mgraph.client.inputs.source_parts import AsParts
from mgraph.client.options import Options, fixed_order
from mgraph.client.stores.recovery import Incarnation, Recovering
from mgraph.client.stores.storing import DEFAULTS, KIND, Storing, surveyed
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphLost, MgraphError, StoreError, WorkerLost
from mgraph.facade import warn
from mgraph.protocol import PATIENCE_SECONDS

__all__ = ["check_seen", "make_graph", "open_stored"]

logger = logging.getLogger(__name__)

Value = dict[str, Any]
GraphParts = tuple[Directory, Options, AsParts]

WORKERS_SECONDS = 60.0  #: time after a loss for workers to appear, and for the store to be released
#: last record kinds of a store after which a graph with `drop_isolated` has yet to drop vertices
LEAVE = {"batch", "expire", "delete_vertices", "remove_vertices"}
AGAIN_SECONDS = 0.2  #: time between two attempts
TRIES = 3  #: attempts to read a store that another graph may be writing


def make_graph(
    place: Place, options: Options, numbering: Callable[[int], Numbering], storing: Storing | None, by_degree: bool
) -> GraphParts:
    """Make a new graph, which recovers from losses if `storing` says so.

    `mgraph.client.creation.place.make_graph` documents arguments and errors.
    """
    graph = places.make_graph(place, options, numbering, storing)
    if storing is None:
        return graph
    chosen = {name: getattr(options, name) for name in (*KIND, *DEFAULTS)}
    directory, options, parts = graph
    incarnation = Incarnation(directory.coordinator, parts, directory.numbering, options)
    return _create(incarnation, _Reopener(place, storing, chosen, None, by_degree))


def open_stored(
    place: Place,
    storing: Storing,
    requested: Value,
    *,
    logged: bool,
    epoch: int | None = None,
    repair: bool = False,
) -> GraphParts:
    """Open the graph of a store.

    Parameters
    ----------
    requested : dict
        The user's options, checked here. Options of the store are the defaults.
    logged : bool
        Log changes.
    epoch : int, optional
        The graph as of this epoch, which is read-only.
    repair : bool

    Returns
    -------
    Directory, Options, AsParts
        As `make_graph` returns them.
    """
    # Check all options before anything is opened.
    epoch = None if epoch is None else check_whole(epoch, "epoch")
    fixed = fixed_order(requested.get("order"))
    chosen = {**DEFAULTS, **{name: requested[name] for name in (*DEFAULTS, *KIND) if name in requested}}
    neutral = {**dict.fromkeys(KIND), **dict.fromkeys(("weighted", "directed", "reverse", "grows"), False)}
    neutral |= {"structure": "csr", "combine": "last"}
    Options(**{**neutral, **chosen})  # raises `InvalidOption`
    opening = _Opening(storing, chosen, epoch, logged and epoch is None, repair, fixed, requested.get("balance"))

    # A graph that writes the store may drop a file just before it is read.
    for attempts_left in reversed(range(1 if opening.own else TRIES)):
        try:
            incarnation = _open(place, *place.begin(chosen["patience"]), opening)
            break
        except StoreError:
            if not attempts_left:
                raise
    logger.info("graph %s: %s opened at epoch %d", incarnation.caller.status.graph, storing.path, incarnation.epoch)
    try:
        graph = _create(incarnation, _Reopener(place, storing, chosen, epoch, isinstance(requested.get("order"), str)))
        graph[0].restore(incarnation.caller.call("keys")[0].get("keys"))
        if incarnation.isolated and graph[0].has_keys:
            leave_isolated(graph[0], f"the graph is opened at epoch {incarnation.epoch}")
    except BaseException:
        incarnation.caller.close()
        raise
    return graph


def check_seen(place: Place, storing: Storing, epoch: int) -> None:
    """Raise `StoreError` if a place's first worker does not see a store with this epoch."""
    caller, _ = place.begin(PATIENCE_SECONDS)
    try:
        surveyed(caller, storing.path, epoch, repair=False, own=False)
    finally:
        caller.close()


def _create(incarnation: Incarnation, reopening: _Reopener) -> GraphParts:
    """Build the parts of a graph. With ``recover="auto"``, its caller reopens the store after a loss."""
    storing = reopening.storing
    if storing.recover is None:
        return (
            places.directory(incarnation.caller, incarnation.options, incarnation.numbering),
            incarnation.options,
            incarnation.parts,
        )
    caller = Recovering(incarnation, reopening, storing.max_recoveries)
    directory = places.directory(caller, incarnation.options, incarnation.numbering)
    caller.bind(directory)
    return directory, incarnation.options, caller.as_parts


@dataclass(frozen=True)
class _Opening:
    """The parameters with which a store is opened; see `open_stored`.

    Parameters
    ----------
    chosen : mapping
        The options. Options of the store are the defaults.
    own : bool
        True if the graph will write the store.
    after : int, optional
        Restore the counts of the epochs after this one.
    generation : int
        The generation of the numbering.
    recoveries : int
        The number of losses before.
    """

    storing: Storing
    chosen: Mapping[str, Any]
    epoch: int | None
    own: bool
    repair: bool = False
    order: Any = None
    balance: Any = None
    after: int | None = None
    generation: int = 0
    recoveries: int = 0


def _open(place: Place, caller: Caller, parts: AsParts, opening: _Opening) -> Incarnation:
    """Open the graph with a caller that has no shards, and close it on failure."""
    try:
        # Scan the store, and let the user's options replace its own.
        stored = surveyed(caller, opening.storing.path, opening.epoch, opening.repair, opening.own)
        for note in stored["notes"]:
            warn(f"the store is repaired: {note}")
        defaults = {
            "combine": "last",
            "keys": None,
            **{name: stored["about"][name] for name in KIND if name in stored["about"]},
        }
        options = Options(**{**defaults, **opening.chosen})

        # Make shards for the stored number of vertices, and restore their content.
        fresh = Numbering.make(stored["n_vertices"], place.size, opening.order, opening.balance)
        numbering = Numbering(fresh.partition, fresh.order, opening.generation)
        options = make_shards(place, caller, options, numbering)
        args = {"epoch": stored["epoch"], "repair": opening.repair, "how": opening.storing.how if opening.own else None}
        args |= {"read_only": opening.epoch is not None, "after": opening.after, "recoveries": opening.recoveries}
        answers = caller.call("restore", args)
    except BaseException:
        caller.close()
        raise

    counts = np.sum([answer["counts"] for answer in answers], axis=0, dtype=np.int64).reshape(-1, len(TOLD))
    isolated = options.drop_isolated and stored["last"] in LEAVE
    return Incarnation(caller, parts, numbering, options, stored["epoch"], counts, isolated=isolated)


@dataclass
class _Reopener:
    """Opens a graph again after a loss: a `mgraph.client.stores.recovery.Reopen`."""

    place: Place
    storing: Storing
    chosen: Mapping[str, Any]
    epoch: int | None
    by_degree: bool

    def __call__(self, lost: Incarnation, generation: int) -> Incarnation:
        """Open a lost graph again, on the workers that are left."""
        end = time.monotonic() + WORKERS_SECONDS
        chosen = {**self.chosen, "device": lost.options.device}
        own, after = self.epoch is None, lost.caller.epoch
        opening = _Opening(
            self.storing, chosen, self.epoch, own, after=after, generation=generation, recoveries=lost.number + 1
        )
        place = self.place

        # Retry errors that pass: a worker dies or starts just now, or a dead one still has the lock.
        while True:
            place = place.renewed(lost.caller, end)
            try:
                incarnation = _open(place, *place.begin(chosen["patience"]), opening)
                break
            except MgraphError as problem:
                transient = type(problem) in (MgraphError, WorkerLost, GraphLost)
                transient = transient or (isinstance(problem, StoreError) and problem.reason is not None)
                if time.monotonic() >= end or not transient:
                    raise
                logger.info("graph %s is opened again soon: %s", lost.caller.status.graph, problem)
                time.sleep(AGAIN_SECONDS)

        # Order by degree again, since the order is not stored.
        self.place = place
        if self.by_degree and own and any(state.edges for state in incarnation.caller.states):
            incarnation.caller.call("reorder")
        return incarnation
