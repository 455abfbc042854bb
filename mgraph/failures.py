"""Errors between client and workers, encoded or answered by another call."""

from __future__ import annotations

import pickle
import traceback
from typing import TypeVar

import numpy as np

from mgraph.batch import TOLD
from mgraph.errors import MgraphError

__all__ = ["Recovered", "Stale", "decode_error", "encode_error", "plain", "with_place"]

E = TypeVar("E", bound=MgraphError)

FIELDS = ("rank", "done", "reason")  #: fields that an error keeps when another one replaces it


class Stale(MgraphError):
    """Read with outdated vertex ranges. The client repeats it; users never see this error."""


class Recovered(Stale):
    """Call during which a worker was lost and the graph reopened. The caller repeats it; users never see this error.

    Parameters
    ----------
    what : str
    done : int64[k, 6], optional
        The counts of the completed steps of an ingest, in the order of `TOLD`.
    """

    def __init__(self, what: str, done: np.ndarray | None = None) -> None:
        super().__init__(what)
        self.done = np.empty((0, len(TOLD)), np.int64) if done is None else done


def encode_error(error: BaseException) -> bytes:
    """Pickle `error`, or an `MgraphError` with its text if that fails.

    Errors other than `MgraphError` get the worker's traceback as a note.
    """
    if not isinstance(error, MgraphError):
        error.add_note("on the worker:\n" + "".join(traceback.format_exception(error)))
    # A round trip shows whether the client can unpickle the error.
    error = plain(error)
    try:
        data = pickle.dumps(error)
        pickle.loads(data)  # fails if the constructor needs other arguments
    except Exception:
        data = pickle.dumps(_with_fields(MgraphError(f"{type(error).__name__}: {error}"), error))
    return data


def plain(error: BaseException) -> Exception:
    """Return `error`, replaced if raising it would end a process or an iteration."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    replacement = _with_fields(MgraphError(f"{type(error).__name__}: {error}"), error)
    for note in getattr(error, "__notes__", ()):
        replacement.add_note(note)
    replacement.__cause__ = error
    return replacement


def decode_error(data: bytes) -> BaseException:
    """Unpickle an exception, or return an `MgraphError` if that fails."""
    try:
        error = pickle.loads(data)
    except Exception as problem:
        return MgraphError(f"a worker raised an error that cannot be unpickled in this process: {problem}")
    return plain(error) if isinstance(error, BaseException) else MgraphError(repr(error))


def with_place(error: BaseException, where: str, rank: int | None = None) -> BaseException:
    """Add `where` to an error's message, or as a note.

    `rank` is the rank that raised the error, if `where` names it.
    """
    if not isinstance(error, MgraphError):
        error.add_note(where)
        return error
    located = _with_fields(type(error)(f"{error} ({where})"), error)
    located.__cause__ = error.__cause__
    if rank is not None:
        located.rank = rank
    return located


def _with_fields(error: E, other: BaseException) -> E:
    """Copy the `FIELDS` of `other` to `error` and return it."""
    vars(error).update({name: value for name, value in vars(other).items() if name in FIELDS})
    return error
