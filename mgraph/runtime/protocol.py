"""What a session says: one comm per (graph, rank) between a client's coordinator and a worker's shard.

The client opens the comm and sends ``{"op": "mgraph_session", "hello": {version, graph, rank, size}}``. Then, as dicts:

===========  =========  ==============================================================================================
from         type       other fields
===========  =========  ==============================================================================================
worker       welcome    version: the session is open
client       call       seq, attempt, method, args, free: run `method` in the shard's thread, forget the results `free`
worker       part       seq, name, array: a piece of a large array of the answer, in order
worker       result     seq, value: the rest of the answer
worker       error      seq, error: the pickled exception
client       abort      seq, attempt: release whatever waits in this attempt, and destroy its exchange
worker       result     seq, value: the acknowledgement, with the shard's state
worker       beat       the worker is alive; sent each second
client       close      seq: free the shard; answered by a result
===========  =========  ==============================================================================================

The worker beats unasked: a pong to the client's ping would queue behind gigabytes of arguments, and a slow link would
look like a dead worker. Large answers travel in parts for the same reason: each part that arrives shows life.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
from distributed.protocol import to_serialize

from mgraph.errors import MgraphError

__all__ = [
    "ABORT_SECONDS",
    "BEAT_SECONDS",
    "EXCHANGE_HANDLER",
    "LOST_SECONDS",
    "PART_BYTES",
    "SESSION_HANDLER",
    "VERSION",
    "Moved",
    "answer",
    "decode_error",
    "encode",
    "encode_error",
    "plain",
    "retold",
]

VERSION = 2  #: both ends must speak the same one
SESSION_HANDLER = "mgraph_session"
EXCHANGE_HANDLER = "mgraph_exchange"
BEAT_SECONDS = 1.0
LOST_SECONDS = 7.0  #: silence after which a rank is lost; with ABORT_SECONDS it stays under the 10 seconds promised
ABORT_SECONDS = 2.0  #: how long a call that failed waits for the other ranks to acknowledge
PART_BYTES = 32 << 20


class Moved(MgraphError):
    """A read was dealt to the ranks by ranges that have changed since; it is dealt again, and no user sees this."""


def encode(value: Any) -> Any:
    """`value` with its arrays marked to travel as frames of their own, and NumPy scalars as Python ones."""
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    return to_serialize(value)


def answer(seq: int, value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The messages that carry the answer `value`: its large arrays in parts, then the rest.

    Top-level arrays of more than `PART_BYTES` bytes are cut; they must be one-dimensional.
    """
    rest = dict(value)
    for name, item in value.items():
        if isinstance(item, np.ndarray) and item.nbytes > PART_BYTES:
            step = max(1, PART_BYTES // item.itemsize)
            for at in range(0, len(item), step):
                yield {"type": "part", "seq": seq, "name": name, "array": to_serialize(item[at : at + step])}
            del rest[name]
    yield {"type": "result", "seq": seq, "value": encode(rest)}


def encode_error(error: BaseException) -> bytes:
    """`error` pickled; one that will not pickle travels as an `MgraphError` with its type and text.

    An error that mgraph does not raise on purpose carries the worker's traceback as a note.
    """
    if not isinstance(error, MgraphError):
        error.add_note("on the worker:\n" + "".join(traceback.format_exception(error)))
    error = plain(error)
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # an exception whose constructor wants more than its message pickles, but does not unpickle
    except Exception:
        data = pickle.dumps(MgraphError(f"{type(error).__name__}: {error}"))
    return data


def plain(error: BaseException) -> Exception:
    """`error`, or an `MgraphError` that tells of it: what ends a process, a task or an iteration is not raised."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    told = MgraphError(f"{type(error).__name__}: {error}")
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    told.__cause__ = error
    return told


def decode_error(data: bytes) -> BaseException:
    """The exception in `data`; an `MgraphError` where its class is unknown on this side."""
    try:
        error = pickle.loads(data)
    except Exception as problem:
        return MgraphError(f"a worker raised an error that cannot be read here: {problem}")
    return plain(error) if isinstance(error, BaseException) else MgraphError(repr(error))


def retold(error: BaseException, where: str) -> BaseException:
    """`error` with the place where it happened: in the message of an `MgraphError`, else as a note."""
    if not isinstance(error, MgraphError):
        error.add_note(where)
        return error
    told = type(error)(f"{error} ({where})")
    told.__cause__ = error.__cause__
    return told
