"""Table of remote calls: effects, needs, and responses to lost workers.

A new call is one line here and its handler in `mgraph.worker.calls`. The client, the workers, a graph in this process
and the timeline derive the properties of a call from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple

import numpy as np

from mgraph import batch, operations

__all__ = ["CALLS", "CHANGES", "IN_PLACE", "AfterLoss", "CallSize", "Kind", "RemoteCall"]


class Kind(Enum):
    """The effect of a call on the graph."""

    READ = auto()  #: reads the shard; Ctrl-C may stop it anywhere
    COMPUTE = auto()  #: computes from the graph without changing it; results stay on the ranks
    CHANGE = auto()  #: changes edges or vertices, by a ballot of all ranks
    MOVE = auto()  #: moves vertices between ranks, or renumbers them, also by a ballot
    CONTROL = auto()  #: creates or inspects shards, exchanges, stores and memory


class AfterLoss(Enum):
    """Response to the loss of a worker during a call, once the graph is open again."""

    ASK_AGAIN = auto()  #: raise `Recovered`; the caller repeats the call with the new ranges
    REPEAT = auto()  #: repeat the same call
    LOOK_UP = auto()  #: answer with the epoch's counts in the store; if it lacks them, as `ASK_AGAIN`
    LOOK_UP_UPDATES = auto()  #: as `LOOK_UP`, but answers to queries are lost, which raises `WorkerLost`
    CONTINUE = auto()  #: raise `Recovered` with the store's counts of the first steps; the caller sends the others


class CallSize(NamedTuple):
    """Size of a call's message to a rank.

    Attributes
    ----------
    nbytes : int
        Bytes of its arrays.
    operations : int
        Updates and queries for which the worker needs memory beside the arrays.
    columns : bool
        True if the operations have ops or weights.
    """

    nbytes: int
    operations: int = 0
    columns: bool = False


@dataclass(frozen=True)
class RemoteCall:
    """Remote call from a client to all ranks of a graph.

    Parameters
    ----------
    name : str
    kind : Kind
    exchange : bool
        True if the ranks communicate in this call, and so need an exchange.
    epoch : bool
        True if the call commits an epoch, its argument `epoch`.
    after_loss : AfterLoss
    columns : tuple of str
        The arguments with one entry per operation, which the worker may prefetch to its GPU.
    reads_in_place : bool
        True if the client reads the answer's arrays where they lie, in shared memory, and keeps none of them.
    rows : str
        The argument with rows that the rank owns, if it answers from these alone; empty otherwise. By channels, ranks
        without rows are not asked.
    handler : str, optional
        The name of its handler on the worker, used in messages; by default `name`.
    """

    name: str
    kind: Kind
    exchange: bool = False
    epoch: bool = False
    after_loss: AfterLoss = AfterLoss.ASK_AGAIN
    columns: tuple[str, ...] = ()
    reads_in_place: bool = False
    rows: str = ""
    handler: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "handler", self.handler or self.name)

    def size(self, args: Mapping[str, Any]) -> CallSize:
        """Return the size of a rank's arguments. O(arguments)."""
        nbytes = _nbytes(args)
        if not self.columns or "src" not in args:
            return CallSize(nbytes)
        # Only operations with ops or weights have further columns.
        op, weight = args.get("op"), args.get("weight")
        wide = "kind" in self.columns or isinstance(op, np.ndarray) or isinstance(weight, np.ndarray)
        return CallSize(nbytes, len(args["src"]), wide)


def _nbytes(value: Any) -> int:
    """Return the bytes of the arrays and byte strings in a value."""
    if type(value) is np.ndarray:
        return value.nbytes
    if isinstance(value, Mapping):
        return sum([_nbytes(part) for part in value.values() if part is not None])
    return len(value) if isinstance(value, bytes) else int(getattr(value, "nbytes", 0))


def _table() -> dict[str, RemoteCall]:
    """Build the table of all calls."""
    read, compute, change, move, control = Kind
    _, repeat, look_up, look_up_updates, go_on = AfterLoss
    edges, stream = batch.COLUMNS, operations.COLUMNS
    calls = [
        # changes of edges and vertices
        RemoteCall("update", change, exchange=True, epoch=True, after_loss=look_up, columns=edges),
        RemoteCall("updates", change, exchange=True, epoch=True, after_loss=look_up, columns=edges),  # small batches
        RemoteCall("execute", change, exchange=True, epoch=True, after_loss=look_up_updates, columns=stream),
        RemoteCall("ingest", change, exchange=True, epoch=True, after_loss=go_on),
        RemoteCall("expire", change, exchange=True, epoch=True, after_loss=look_up),
        RemoteCall("delete_vertices", change, exchange=True, epoch=True, after_loss=look_up),
        RemoteCall("remove_vertices", change, exchange=True, epoch=True, after_loss=look_up),
        RemoteCall("add_vertices", change, exchange=True, epoch=True, after_loss=look_up),
        RemoteCall("drop_vertices", change, exchange=True),  # belongs to the epoch before
        # moves of vertices
        RemoteCall("rebalance", move, exchange=True, after_loss=repeat),
        RemoteCall("reorder", move, exchange=True, after_loss=repeat),
        # reads of rows, and of results
        RemoteCall("has_edges", read, rows="src"),
        RemoteCall("weights", read, rows="src"),
        RemoteCall("degrees", read, rows="ids"),
        RemoteCall("neighbors", read, rows="ids"),
        RemoteCall("rows", read),
        RemoteCall("fingerprint", read, after_loss=repeat),
        RemoteCall("memory", read, after_loss=repeat),
        RemoteCall("fetch", read, reads_in_place=True),
        RemoteCall("top", read),
        RemoteCall("reduced", read),
        RemoteCall("order", read),
        RemoteCall("latest", read),
        # computations
        RemoteCall("query", compute, exchange=True, columns=stream, handler="execute"),  # a stream without updates
        RemoteCall("isolated", compute, exchange=True, after_loss=repeat),
        RemoteCall("run", compute, exchange=True, reads_in_place=True),
        RemoteCall("maintain", compute, exchange=True),
        RemoteCall("combine", compute),
        RemoteCall("lend", compute),
        # shards and their exchange
        RemoteCall("inspect", control, after_loss=repeat),
        RemoteCall("offer_memory", control),
        RemoteCall("map_memory", control),
        RemoteCall("reserve", control),
        RemoteCall("create", control),
        RemoteCall("copy", compute, exchange=True),
        RemoteCall("adopt", control),
        RemoteCall("open_exchange", control),
        RemoteCall("connect_exchange", control),
        RemoteCall("resolve", control),
        RemoteCall("begin_at", control),
        RemoteCall("keys", control),
        RemoteCall("share_keys", control),
        # stores
        RemoteCall("claim", control),
        RemoteCall("finish", control),
        RemoteCall("survey", control),
        RemoteCall("scan_parts", control),
        RemoteCall("survey_parts", control),
        RemoteCall("new_parts", control),
        RemoteCall("create_parts", control, exchange=True),
        RemoteCall("create_store", control, exchange=True),
        RemoteCall("restore", control, exchange=True),
        RemoteCall("snapshot", control, exchange=True),
        RemoteCall("save", control, exchange=True),
        RemoteCall("writing", control),
        RemoteCall("store", control, after_loss=repeat),
    ]
    return {call.name: call for call in calls}


CALLS = _table()  #: all calls, by name
CHANGES = frozenset(call.name for call in CALLS.values() if call.kind is Kind.CHANGE)
#: arguments with one entry per operation; no call keeps them, so a worker reads them where they lie
IN_PLACE = frozenset(name for call in CALLS.values() for name in call.columns)
