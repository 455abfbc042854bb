"""The protocol between the client and the workers: one session for each graph and rank, and the session's messages.

The client opens a session with `Hello`, and the worker answers with `Welcome`. After that:

===========  =========  ==============================================================================================
from         message    meaning
===========  =========  ==============================================================================================
client       `Call`     run a method in the shard's thread, and free the results named in `free`
worker       `Part`     a piece of a large array of the answer; pieces come in order
worker       `Result`   the rest of the answer, and the shard's state after the call
worker       `Failure`  the call raised: the pickled exception, and the shard's state
client       `Abort`    end all waits of this attempt and destroy its exchange; answered by a `Result`
worker       `Beat`     the worker is alive; sent every second, with the epoch, and the user's function that runs
client       `Close`    free the shard; answered by a `Result`
client       `Publish`  keep the shard when this session ends, or do not any more; answered by a `Result`
client       `Turn`     hold the calls of other clients of a published graph back; answered by a `Result` when they are
client       `Done`     the turn has ended; not answered
client       `Share`    map this memory, and hand large arrays over in it from now on; answered by a `Result`
either       `Freed`    arrays that lay at these places of the shared memory were read; not answered
===========  =========  ==============================================================================================

The worker sends beats without being asked. If the client sent pings, they would queue behind gigabytes of arguments,
and a worker on a slow link would look dead. Large answers are sent in parts for the same reason: each part that arrives
shows that the worker is alive.

Messages are frozen dataclasses in both processes and are sent as plain dicts (`to_dict`, `from_dict`), because a
pickled dataclass costs ten times as much as a dict. This module does not import Dask; `mgraph.wire` writes the dicts to
Dask's comms.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

import numpy as np

from mgraph.errors import MgraphError

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

VERSION = 12  #: of the protocol; client and worker must have the same one
BEAT_SECONDS = 1.0  #: between two beats of a worker
SILENCE_SECONDS = 8.0  #: without a message from a worker until a warning about it is logged
PATIENCE_SECONDS = 60.0  #: without a message from a worker until it counts as lost: default of a graph's `patience`
ABORT_SECONDS = 2.0  #: for which a failed call waits until the other ranks have acknowledged the abort
AFTER = "after"  #: in a call's answer on a worker: a future; the answer is sent when that has ended, or None
PART_BYTES = 32 << 20  #: an answer's array with more bytes is sent in parts of at most this many
PIECE_BYTES = 8 << 20  #: the same where it is handed over in shared memory
SHARE_SEQ = -2  #: the number of the one `Share` of a session


# ---- the state of a shard --------------------------------------------------------------------------------------------


class ShardState(NamedTuple):
    """The state of a rank's shard, sent to the client with the answer to each call.

    Parameters
    ----------
    epoch : int
        The number of committed changes of content: batches and added vertices.
    changes : int
        The number of committed changes of any kind: those of content, moves of the ranges, new orders.
    generation : int
        How often the order of the vertices was changed.
    lo, hi : int
        The rank owns the internal ids ``lo .. hi - 1``.
    edges : int
        The edges that this rank counts; each undirected edge is counted by one rank only.
    arcs : int
        The arcs that the rank's structures store.
    nbytes : int
        Bytes of device memory that structures and results hold.
    seconds : float
        The time of the last batch, without waiting for other ranks.
    memory_left : int
        Bytes of host memory that the worker may still allocate.
    in_doubt : bool
        Whether the rank holds a prepared change and does not know the outcome of the vote on it.
    broken : str or None
        Why a commit failed on this rank, after which ranks hold different states.
    stuck : bool
        Whether a sum of weights was so large that a weight did not change it.
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


class Answer(NamedTuple):
    """A call's answer on one rank, and the state of the rank's shard after the call."""

    value: dict[str, Any]
    state: ShardState


# ---- messages --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello:
    """Open a session: the graph's id, the rank of this worker, the number of ranks, and the client's `patience`.

    With `attach` it is one more session with a shard of a published graph; else the shard is made.
    """

    graph: str
    rank: int
    size: int
    version: int = VERSION
    patience: float = PATIENCE_SECONDS
    attach: bool = False


@dataclass(frozen=True)
class Welcome:
    """The session is open; `version` is that of the worker."""

    version: int = VERSION


@dataclass(frozen=True)
class Call:
    """Run `method` with `args` in the shard's thread, as part of `attempt`, and free the results named in `free`."""

    seq: int
    attempt: int
    method: str
    args: dict[str, Any] = field(default_factory=dict)
    free: tuple[str, ...] = ()


@dataclass(frozen=True)
class Abort:
    """End all waits of `attempt` and destroy its exchange."""

    seq: int
    attempt: int


@dataclass(frozen=True)
class Close:
    """Free the shard and end the session."""

    seq: int


@dataclass(frozen=True)
class Publish:
    """The shard belongs to its worker under this `name`, with the `card` for clients that attach; to none for None.

    `attempt` and `known` are as in `Done`.
    """

    seq: int
    name: str | None
    card: bytes = b""
    attempt: int = 0
    known: bytes | None = None


@dataclass(frozen=True)
class Turn:
    """Ask rank 0 for the turn; the answer says what the last holder said with `Done`."""

    seq: int


@dataclass(frozen=True)
class Done:
    """The turn that was asked for as `turn` has ended, or is not wanted any more.

    Parameters
    ----------
    attempt : int or None
        The number of the exchange; None if nothing was done.
    known : bytes or None
        What the holder knows of the ranks; None where it may be wrong.
    """

    turn: int
    attempt: int | None = None
    known: bytes | None = None


@dataclass(frozen=True)
class Part:
    """A piece of the array `name` in the answer of call `seq`: its rows from `first` on, of `total`."""

    seq: int
    name: str
    array: Any
    first: int
    total: int


@dataclass(frozen=True)
class Result:
    """The answer of call `seq`, without the arrays that were sent in parts; `freed` as in `Freed`."""

    seq: int
    value: dict[str, Any]
    state: ShardState
    freed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Failure:
    """Call `seq` raised `error`, which is pickled."""

    seq: int
    error: bytes
    state: ShardState


@dataclass(frozen=True)
class Share:
    """Map the segment at `place`; see `mgraph.shared`. The answer says in `why` what prevents it, if anything does."""

    seq: int
    place: bytes


@dataclass(frozen=True)
class Freed:
    """The arrays that lay at these places of the shared memory were read."""

    places: tuple[int, ...]


@dataclass(frozen=True)
class Beat:
    """The worker is alive; `busy` is the name of the user's function that it runs, or None; `epoch` the shard's."""

    busy: str | None = None
    epoch: int = 0


Message = (
    Hello | Welcome | Call | Abort | Close | Publish | Turn | Done | Share | Freed | Part | Result | Failure | Beat
)

_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in get_args(Message)}


def to_dict(message: Message) -> dict[str, Any]:
    """`message` as a dict of its fields and its `type`."""
    fields = {"type": type(message).__name__.lower(), **vars(message)}
    if "state" in fields:
        fields["state"] = _packed(fields["state"])
    return fields


def _packed(state: ShardState) -> bytes:
    """The values of `state` in the order of its fields; one object, since Dask measures every entry of a dict."""
    values = (value.item() if isinstance(value, np.generic) else value for value in state)
    return pickle.dumps(tuple(values))


def from_dict(fields: dict[str, Any]) -> Any:
    """The message in a dict from `to_dict`; `MgraphError` for an unknown type."""
    kind = _KINDS.get(str(fields.get("type")))
    if kind is None:
        raise MgraphError(f"unknown message type {fields.get('type')!r}; it is one of {', '.join(_KINDS)}")
    given = {name: value for name, value in fields.items() if name != "type"}
    if "state" in given:
        given["state"] = ShardState(*pickle.loads(given["state"]))
    for name in ("free", "places", "freed"):
        if name in given:
            given[name] = tuple(given[name])
    return kind(**given)


def answer_messages(
    seq: int,
    value: dict[str, Any],
    state: ShardState,
    large: Callable[[Any], bool] | None = None,
) -> Iterator[Part | Result]:
    """The messages of an answer: its large arrays in parts, then a `Result` with the rest.

    Top-level arrays of more than `PART_BYTES` bytes are split by rows; with `large` those that it is true of, into
    parts of `PIECE_BYTES`.
    """
    rest, most = dict(value), PIECE_BYTES if large else PART_BYTES
    for name, item in value.items():
        if large(item) if large else isinstance(item, np.ndarray) and item.nbytes > PART_BYTES:
            step = max(1, most * len(item) // item.nbytes)
            for at in range(0, len(item), step):
                yield Part(seq, name, item[at : at + step], at, len(item))
            del rest[name]
    yield Result(seq, rest, state)
