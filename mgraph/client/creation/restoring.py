"""Opening a graph from its store: for a user who asks for it, and again where a worker was lost."""

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
Made = tuple[Directory, Options, AsParts]

WORKERS_SECONDS = 60.0  #: for which a graph that lost a worker waits for workers, and for its store to be free
#: record kinds of the last change in a store after which a graph that drops vertices without edges has yet to do so
LEAVE = {"batch", "expire", "delete_vertices", "remove_vertices"}
UNKNOWN = -1  #: as the counts of an epoch that only a snapshot has
AGAIN_SECONDS = 0.2  #: between two tries
TRIES = 3  #: to read a store that another graph may be writing


def make_graph(
    place: Place, options: Options, numbering: Callable[[int], Numbering], storing: Storing | None, by_degree: bool
) -> Made:
    """As `mgraph.client.creation.place.make_graph`; the graph comes back after a loss if `storing` says so."""
    made = places.make_graph(place, options, numbering, storing)
    if storing is None:
        return made
    chosen = {name: getattr(options, name) for name in (*KIND, *DEFAULTS)}
    directory, options, parts = made
    incarnation = Incarnation(directory.coordinator, parts, directory.numbering, options)
    return _create(incarnation, _Reopener(place, storing, chosen, None, by_degree))


def open_stored(
    place: Place,
    storing: Storing,
    given: Value,
    *,
    logged: bool,
    epoch: int | None = None,
    repair: bool = False,
) -> Made:
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
        As `make_graph` returns them.
    """
    epoch = None if epoch is None else check_whole(epoch, "epoch")
    fixed = fixed_order(given.get("order"))
    chosen = {**DEFAULTS, **{name: given[name] for name in (*DEFAULTS, *KIND) if name in given}}
    plain = {**dict.fromkeys(KIND), **dict.fromkeys(("weighted", "directed", "reverse", "grows"), False)}
    plain |= {"structure": "csr", "combine": "last"}
    Options(**{**plain, **chosen})  # checked before anything is opened
    how = _Opening(storing, chosen, epoch, logged and epoch is None, repair, fixed, given.get("balance"))
    for left in reversed(range(1 if how.own else TRIES)):
        try:
            incarnation = _open(place, *place.begin(chosen["patience"]), how)
            break
        except StoreError:  # the graph that writes the store may just have dropped what was to be read
            if not left:
                raise
    logger.info("graph %s: %s opened at epoch %d", incarnation.caller.status.graph, storing.path, incarnation.epoch)
    try:
        made = _create(incarnation, _Reopener(place, storing, chosen, epoch, isinstance(given.get("order"), str)))
        made[0].restore(incarnation.caller.call("keys")[0].get("keys"))
        if incarnation.isolated and made[0].has_keys:
            leave_isolated(made[0], f"the graph is opened at epoch {incarnation.epoch}")
    except BaseException:
        incarnation.caller.close()
        raise
    return made


def check_seen(place: Place, storing: Storing, epoch: int) -> None:
    """Raise `StoreError` where the first worker of a place does not see a store that has an epoch."""
    caller, _ = place.begin(PATIENCE_SECONDS)
    try:
        surveyed(caller, storing.path, epoch, repair=False, own=False)
    finally:
        caller.close()


def _create(incarnation: Incarnation, reopening: _Reopener) -> Made:
    """What a graph is made of; with a caller that comes back, if that was asked for."""
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
    """How a store is opened; see `open_stored`.

    Parameters
    ----------
    chosen : mapping
        Options; those of the store where one is left out.
    own : bool
        Whether the graph is to write the store.
    after : int, optional
        Count what each epoch after this one did.
    generation : int
        The generation of the numbering.
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


def _open(place: Place, caller: Caller, parts: AsParts, how: _Opening) -> Incarnation:
    """The graph, by a caller that has no shards yet; it is closed if that fails."""
    try:
        found = surveyed(caller, how.storing.path, how.epoch, how.repair, how.own)
        for note in found["notes"]:
            warn(f"the store is repaired: {note}")
        kept = {
            "combine": "last",
            "keys": None,
            **{name: found["about"][name] for name in KIND if name in found["about"]},
        }
        options = Options(**{**kept, **how.chosen})
        made = Numbering.make(found["n_vertices"], place.size, how.order, how.balance)
        numbering = Numbering(made.partition, made.order, how.generation)
        options = make_shards(place, caller, options, numbering)
        restored = {"epoch": found["epoch"], "repair": how.repair, "how": how.storing.how if how.own else None}
        restored |= {"read_only": how.epoch is not None, "after": how.after}
        answers = caller.call("restore", restored)
    except BaseException:
        caller.close()
        raise
    known = np.sum([answer["counts"] for answer in answers], axis=0, dtype=np.int64).reshape(-1, len(TOLD))
    counts = np.full((0 if how.after is None else found["epoch"] - how.after, len(TOLD)), UNKNOWN)
    counts[len(counts) - len(known) :] = known
    isolated = options.drop_isolated and found["last"] in LEAVE
    return Incarnation(caller, parts, numbering, options, found["epoch"], counts, isolated=isolated)


@dataclass
class _Reopener:
    """Opens a graph again after a loss: `mgraph.client.stores.recovery.Reopen`."""

    place: Place
    storing: Storing
    chosen: Mapping[str, Any]
    epoch: int | None
    by_degree: bool

    def __call__(self, lost: Incarnation, generation: int) -> Incarnation:
        """The graph again, on the workers that are there."""
        end = time.monotonic() + WORKERS_SECONDS
        chosen = {**self.chosen, "device": lost.options.device}
        own, after = self.epoch is None, lost.caller.status.epoch
        how = _Opening(self.storing, chosen, self.epoch, own, after=after, generation=generation)
        place = self.place
        while True:
            place = place.renewed(lost.caller, end)
            try:
                incarnation = _open(place, *place.begin(chosen["patience"]), how)
                break
            except MgraphError as problem:  # a worker has died or starts just now, or one that died has the lock yet
                passes = type(problem) in (MgraphError, WorkerLost, GraphLost)
                passes = passes or (isinstance(problem, StoreError) and problem.reason is not None)
                if time.monotonic() >= end or not passes:
                    raise
                logger.info("graph %s is opened again soon: %s", lost.caller.status.graph, problem)
                time.sleep(AGAIN_SECONDS)
        self.place = place
        if self.by_degree and own and any(state.edges for state in incarnation.caller.status.states):
            incarnation.caller.call("reorder")
        return incarnation
