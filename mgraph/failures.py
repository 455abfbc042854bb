"""Errors between client and workers, encoded or answered by another call."""

from __future__ import annotations

import builtins
import sys
import traceback
from typing import Any, TypeVar

import numpy as np

from mgraph.batch import TOLD
from mgraph.errors import MgraphError
from mgraph.plain import NotPlain, pack, unpack

__all__ = ["Recovered", "Stale", "decode_error", "encode_error", "plain", "with_place"]

E = TypeVar("E", bound=MgraphError)

FIELDS = ("rank", "done", "reason", "undecided")  #: fields that an error keeps when another one replaces it


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
    """Pack an exception by the name of its class, its arguments and its attributes. No code runs when it is read.

    An error that is not an `MgraphError` gets the worker's traceback as a note. Attributes that are not plain values
    are left out; an exception whose arguments are not plain arrives as an `MgraphError` with its type and text.
    """
    if not isinstance(error, MgraphError):
        error.add_note("on the worker:\n" + "".join(traceback.format_exception(error)))
    error = plain(error)
    kind = type(error)
    return pack(
        {
            "module": kind.__module__,
            "name": kind.__qualname__,
            "text": str(error),
            "args": _arguments(error),
            "attributes": {name: value for name, value in vars(error).items() if _is_plain(value)},
        }
    )


def _arguments(error: Exception) -> tuple[Any, ...] | None:
    """Return the arguments that make an equal error; None if they are not plain."""
    path = error.filename if isinstance(error, OSError) else None
    args = error.args if path is None else (*error.args[:2], path)
    return args if _is_plain(args) else None


def _is_plain(value: Any) -> bool:
    try:
        pack(value)
    except NotPlain:
        return False
    return True


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
    """Return the exception in `data`; an `MgraphError` with its type and text if it cannot be made here.

    It can be made if this process has imported its class, and if the class takes the arguments.
    """
    try:
        fields = unpack(data)
        text = f"{str(fields['name']).rpartition('.')[2]}: {fields['text']}"
        attributes = dict(fields["attributes"])
        error = _build_error(fields)
    except Exception as problem:
        return MgraphError(f"a worker raised an error that cannot be read in this process: {problem}")
    if error is None:
        error = MgraphError(text)
        attributes = {name: value for name, value in attributes.items() if name in (*FIELDS, "__notes__")}
    notes = attributes.pop("__notes__", ())
    vars(error).update(attributes)
    for note in notes:
        error.add_note(str(note))
    return plain(error)


def _build_error(fields: dict[str, Any]) -> BaseException | None:
    """Make an exception of a class that is imported here; None if there is none, or it makes another one."""
    kind = vars(sys.modules.get(fields["module"], builtins)).get(fields["name"])
    if fields["args"] is None or not (isinstance(kind, type) and issubclass(kind, BaseException)):
        return None
    if kind.__module__ != fields["module"]:
        return None
    try:
        error = kind(*fields["args"])
    except Exception:  # its constructor takes other arguments
        return None
    return error if str(error) == fields["text"] else None


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
