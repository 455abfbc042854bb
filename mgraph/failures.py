"""Errors between the client and the workers: how they are sent, and those that the client answers by another call."""

from __future__ import annotations

import pickle
import traceback
from typing import TypeVar

import numpy as np

from mgraph.batch import TOLD
from mgraph.errors import MgraphError

__all__ = ["Recovered", "Stale", "decode_error", "encode_error", "plain", "with_place"]

E = TypeVar("E", bound=MgraphError)

FIELDS = ("rank", "done", "reason")  #: of errors, which stay where one error replaces another


class Stale(MgraphError):
    """A read used vertex ranges that have changed since. The client repeats the read; users never see this error."""


class Recovered(Stale):
    """A worker was lost during a call, and the graph was opened again: the call is made again. Users never see it.

    Parameters
    ----------
    what : str
    done : int64[k, 6], optional
        The counts, in the order of `TOLD`, of the steps of an ingest that are done.
    """

    def __init__(self, what: str, done: np.ndarray | None = None) -> None:
        super().__init__(what)
        self.done = np.empty((0, len(TOLD)), np.int64) if done is None else done


def encode_error(error: BaseException) -> bytes:
    """`error`, pickled. An error that cannot be pickled is replaced by an `MgraphError` with its type and text.

    An error that is not an `MgraphError` gets the worker's traceback as a note.
    """
    if not isinstance(error, MgraphError):
        error.add_note("on the worker:\n" + "".join(traceback.format_exception(error)))
    error = plain(error)
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # an exception whose constructor needs other arguments can be pickled but not unpickled
    except Exception:
        data = pickle.dumps(_with_fields(MgraphError(f"{type(error).__name__}: {error}"), error))
    return data


def plain(error: BaseException) -> Exception:
    """`error`; an `MgraphError` with its text if it would end a process, a task or an iteration when raised."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    told = _with_fields(MgraphError(f"{type(error).__name__}: {error}"), error)
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    told.__cause__ = error
    return told


def decode_error(data: bytes) -> BaseException:
    """The exception in `data`; an `MgraphError` if it cannot be unpickled here, as when its class is unknown."""
    try:
        error = pickle.loads(data)
    except Exception as problem:
        return MgraphError(f"a worker raised an error that cannot be unpickled in this process: {problem}")
    return plain(error) if isinstance(error, BaseException) else MgraphError(repr(error))


def with_place(error: BaseException, where: str, rank: int | None = None) -> BaseException:
    """Return `error` with `where` it happened: in the message if it is an `MgraphError`, else as a note.

    `rank` is given if `where` names the rank that raised it.
    """
    if not isinstance(error, MgraphError):
        error.add_note(where)
        return error
    told = _with_fields(type(error)(f"{error} ({where})"), error)
    told.__cause__ = error.__cause__
    if rank is not None:
        told.rank = rank
    return told


def _with_fields(error: E, other: BaseException) -> E:
    vars(error).update({name: value for name, value in vars(other).items() if name in FIELDS})
    return error
