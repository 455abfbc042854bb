"""Protocol between client and workers: a session per graph and rank.

The client opens a session with `Hello`, and the worker answers with `Welcome`. After that:

===========  =========  ==============================================================================================
from         message    meaning
===========  =========  ==============================================================================================
client       `Call`     run a method in the shard's thread, and free the results named in `free`
worker       `Part`     a piece of a large array of the answer; pieces come in order
worker       `Result`   the rest of the answer, and the shard's state after the call
worker       `Failure`  the call raised: the error, as `mgraph.failures` packs it, and the shard's state
client       `Abort`    end all waits of this attempt and destroy its exchange; answered by a `Result`
worker       `Beat`     the worker is alive; sent every second, with the epoch, and the user's function that runs
client       `Close`    free the shard; answered by a `Result`
client       `Publish`  keep the shard when this session ends, or no longer; answered by a `Result`
client       `Turn`     lock a published graph against other clients; answered by a `Result` once it is locked
client       `Done`     unlock it; not answered
client       `Share`    map this shared memory, and transfer large arrays in it from now on; answered by a `Result`
either       `Freed`    the arrays at these offsets of the shared memory were read; not answered
===========  =========  ==============================================================================================

The worker sends beats without being asked. If the client sent pings, they would queue behind gigabytes of arguments,
and a worker on a slow link would look dead. Large answers are sent in parts for the same reason: each part that arrives
shows that the worker is alive.

Where client and worker share a host, a small `Call` and a small answer may go by the session's channel instead: see
`mgraph.channel`. The client sends a call so only when no other one is under way.

Messages are named tuples. `mgraph.wire` sends them by Dask's comms, as dicts (`to_dict`, `from_dict`), so that another
version's `Hello` can be read; `mgraph.channel` sends their values. This module does not import Dask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args

import numpy as np

from mgraph.errors import MgraphError
from mgraph.plain import pack, unpack

__all__ = [
    "ABORT_SECONDS",
    "AFTER",
    "BEAT_SECONDS",
    "PART_BYTES",
    "PATIENCE_SECONDS",
    "SILENCE_SECONDS",
    "VERSION",
    "Abort",
    "Answer",
    "Beat",
    "Call",
    "Close",
    "Done",
    "Failure",
    "Freed",
    "Hello",
    "Message",
    "Part",
    "Publish",
    "Result",
    "ShardState",
    "Share",
    "Turn",
    "Welcome",
    "answer_messages",
    "from_dict",
    "to_dict",
]

VERSION = 18  #: version of the protocol, equal at client and worker
BEAT_SECONDS = 1.0  #: time between two beats of a worker
SILENCE_SECONDS = 8.0  #: silence of a worker after which a warning is logged
PATIENCE_SECONDS = 60.0  #: silence of a worker after which it counts as lost: default of a graph's `patience`
ABORT_SECONDS = 2.0  #: how long a failed call waits for the other ranks to acknowledge the abort
AFTER = "after"  #: key of a future (or None) in a call's answer on a worker; the answer is sent after it
PART_BYTES = 32 << 20  #: a larger array of an answer is sent in parts of at most this size
PIECE_BYTES = 8 << 20  #: the same in shared memory
SHARE_SEQ = -2  #: the number of every `Share`: a session has one at a time


# ---- the state of a shard --------------------------------------------------------------------------------------------


class ShardState(NamedTuple):
    """State of a rank's shard, sent to the client with each answer.

    Parameters
    ----------
    epoch : int
        The number of committed changes of content: batches and added vertices.
    changes : int
        The number of committed changes of any kind: those of content, moves of the ranges, new orders.
    generation : int
        The number of changes of the vertices' order.
    lo, hi : int
        The rank owns the internal ids ``lo .. hi - 1``.
    edges : int
        The edges that this rank counts; each undirected edge is counted by one rank only.
    arcs : int
        The arcs that the rank's structures store.
    nbytes : int
        Bytes of device memory that structures and results hold, and the region in which programs of ranks meet.
    seconds : float
        The time of the last batch, without waiting for other ranks.
    memory_left : int
        Bytes of host memory that the worker may still allocate.
    in_doubt : bool
        True if the rank holds a prepared change and does not know the outcome of its ballot.
    broken : str or None
        Why a commit failed on this rank; the ranks then hold different states.
    stuck : bool
        True if a sum of weights was so large that a weight did not change it, or made it infinite.
    operations, batches : int
        The distinct edges in batches, and the batches, since this incarnation of the graph began.
    batch_seconds : float
        The sum of the times of these batches.
    durable : int
        The last epoch on this rank's disk; 0 without a store.
    recoveries : int
        The number of losses after which the graph was opened again.
    undecided : int
        The last epoch that this rank could not refuse in its log: the store may have it; 0 if none.
    """

    epoch: int = 0
    changes: int = 0
    generation: int = 0
    lo: int = 0
    hi: int = 0
    edges: int = 0
    arcs: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    memory_left: int = 1 << 62
    in_doubt: bool = False
    broken: str | None = None
    stuck: bool = False
    operations: int = 0
    batches: int = 0
    batch_seconds: float = 0.0
    durable: int = 0
    recoveries: int = 0
    undecided: int = 0


class Answer(NamedTuple):
    """Answer of a call on a rank, and the shard's state after it; `viewed` if it has views of shared memory."""

    value: dict[str, Any]
    state: ShardState
    viewed: bool = False


# ---- messages --------------------------------------------------------------------------------------------------------


class Hello(NamedTuple):
    """Open a session of the client with `rank` of `graph`.

    The graph has `size` ranks, and `patience` is the client's. With `attach` it is another session with a shard of a
    published graph; otherwise the shard is created. `channel` is the name at which the client listens for a
    `mgraph.channel`; empty for none.
    """

    graph: str
    rank: int
    size: int
    version: int = VERSION
    patience: float = PATIENCE_SECONDS
    attach: bool = False
    channel: bytes = b""


class Welcome(NamedTuple):
    """Confirm an open session; `version` is the worker's. `why` says why there is no channel; empty otherwise."""

    version: int = VERSION
    why: str = ""


class Call(NamedTuple):
    """Run `method` with `args` in the shard's thread, and free the results in `free`; `freed` as in `Freed`."""

    seq: int
    attempt: int
    method: str
    args: dict[str, Any]
    free: tuple[str, ...] = ()
    freed: tuple[int, ...] = ()


class Abort(NamedTuple):
    """End all waits of `attempt` and destroy its exchange."""

    seq: int
    attempt: int


class Close(NamedTuple):
    """Free the shard and end the session."""

    seq: int


class Publish(NamedTuple):
    """Publish the shard under `name`, or withdraw it with None.

    Clients that attach get the `card`. `attempt` and `known` are as in `Done`.
    """

    seq: int
    name: str | None
    card: bytes = b""
    attempt: int = 0
    known: bytes | None = None


class Turn(NamedTuple):
    """Request the lock of a published graph from rank 0; answered with the last `Done`."""

    seq: int


class Wanted(NamedTuple):
    """Tell the holder of the lock requested as `turn` that another client waits for it."""

    turn: int


class Done(NamedTuple):
    """Release the lock requested as `turn`, or withdraw the request.

    Parameters
    ----------
    attempt : int or None
        The number of the exchange; None if no call was made.
    known : bytes or None
        The holder's view of the ranks' states; None if it may be wrong.
    """

    turn: int
    attempt: int | None = None
    known: bytes | None = None


class Part(NamedTuple):
    """Rows of a large array `name` in an answer, from `first`, of `total`."""

    seq: int
    name: str
    array: Any
    first: int
    total: int


class Result(NamedTuple):
    """Answer of call `seq`, without arrays sent in parts; `freed` as in `Freed`."""

    seq: int
    value: dict[str, Any]
    state: ShardState
    freed: tuple[int, ...] = ()


class Failure(NamedTuple):
    """The `error` that call `seq` raised, as `encode_error` packs it."""

    seq: int
    error: bytes
    state: ShardState


class Share(NamedTuple):
    """Map the segment at `place`. The answer's `why` tells why not.

    After the session's own segment a `common` one may follow, which the client maps into all workers of this host.
    """

    seq: int
    place: bytes
    common: bool = False


class Freed(NamedTuple):
    """Free the offsets of shared memory whose arrays were read."""

    places: tuple[int, ...]


class Beat(NamedTuple):
    """Sign of life, with the running user function and the epoch."""

    busy: str | None = None
    epoch: int = 0


Message = (
    Hello
    | Welcome
    | Call
    | Abort
    | Close
    | Publish
    | Turn
    | Wanted
    | Done
    | Share
    | Freed
    | Part
    | Result
    | Failure
    | Beat
)

_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in get_args(Message)}


def to_dict(message: Message) -> dict[str, Any]:
    """Convert `message` to a dict of its fields and its `type`."""
    fields = {"type": type(message).__name__.lower(), **message._asdict()}
    if "state" in fields:
        fields["state"] = _packed(fields["state"])
    return fields


def _packed(state: ShardState) -> bytes:
    """Pack the values of `state` together."""
    # Dask measures every entry of a dict that it sends.
    return pack(tuple(state))


def from_dict(fields: dict[str, Any]) -> Any:
    """Return the message of a dict from `to_dict`."""
    kind = _KINDS.get(str(fields.get("type")))
    if kind is None:
        raise MgraphError(f"unknown message type {fields.get('type')!r}; it is one of {', '.join(_KINDS)}")
    arguments = {name: value for name, value in fields.items() if name != "type"}
    if "state" in arguments:
        arguments["state"] = ShardState(*unpack(arguments["state"]))
    for name in ("free", "places", "freed"):
        if name in arguments:
            arguments[name] = tuple(arguments[name])
    return kind(**arguments)


def answer_messages(
    seq: int,
    value: dict[str, Any],
    state: ShardState,
    large: Callable[[Any], bool] | None = None,
) -> Iterator[Part | Result]:
    """Yield the messages of an answer: parts of large arrays, then a `Result`.

    Top-level arrays of more than `PART_BYTES` are split by rows. With the predicate `large`, the arrays that satisfy it
    are split into parts of `PIECE_BYTES`.
    """
    rest, most = dict(value), PIECE_BYTES if large else PART_BYTES
    # Split large arrays by rows.
    for name, item in value.items():
        if large(item) if large else isinstance(item, np.ndarray) and item.nbytes > PART_BYTES:
            step = max(1, most * len(item) // item.nbytes)
            for at in range(0, len(item), step):
                yield Part(seq, name, item[at : at + step], at, len(item))
            del rest[name]
    yield Result(seq, rest, state)
