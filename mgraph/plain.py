"""Pack plain values: numbers, text, bytes, sequences, dicts and arrays of numbers.

Unpacking runs no code, whatever the bytes are. Messages that mgraph's processes read by themselves have this form. The
format is MessagePack.
"""

from __future__ import annotations

import re
from typing import Any

import msgpack
import numpy as np

__all__ = ["NotPlain", "array_fields", "array_or_dict", "pack", "plain_dtype", "unpack"]

ARRAY = "mgraph array"  #: key of the dict that stands for an array
KINDS = "biufmM"  #: kinds of NumPy's dtypes that are plain
DTYPE = re.compile(rf"[<>|=]?[{KINDS}]\d{{1,2}}(\[[0-9A-Za-z]{{1,12}}\])?")


class NotPlain(ValueError):
    """Raised for values that are not plain, and for malformed bytes."""


def pack(value: Any) -> bytes:
    """Return a plain value as bytes.

    Raises
    ------
    NotPlain
        It has another value in it, an integer of more than 64 bits, or too deep a nesting.
    """
    try:
        data: bytes = msgpack.packb(value, default=_plain)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotPlain(str(error)) from None
    return data


def array_fields(array: np.ndarray) -> dict[str, Any]:
    """Return the dict of plain values that stands for an array of numbers."""
    return {ARRAY: array.dtype.str, "shape": array.shape, "bytes": array.tobytes()}


def _plain(value: Any) -> Any:
    # MessagePack asks for the types that it does not know.
    if isinstance(value, np.ndarray) and value.dtype.kind in KINDS:
        return array_fields(value)
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a plain value")


def unpack(data: bytes) -> Any:
    """Return the value of packed bytes.

    Sequences are tuples, and arrays are writable copies.

    Raises
    ------
    NotPlain
        `data` is no packed value.
    """
    try:
        return msgpack.unpackb(data, object_hook=array_or_dict, use_list=False, strict_map_key=False)
    except Exception as error:  # msgpack has many, NumPy others
        raise NotPlain(f"{type(error).__name__}: {error}") from None


def array_or_dict(fields: dict[Any, Any]) -> Any:
    """Return the array that `fields` stands for, a writable copy; `fields` itself if it stands for none."""
    if ARRAY not in fields:
        return fields
    return np.frombuffer(bytearray(fields["bytes"]), plain_dtype(fields[ARRAY])).reshape(fields["shape"])


def plain_dtype(name: Any) -> np.dtype:
    """Return the dtype of numbers or times with this name; `NotPlain` for others, such as objects.

    NumPy itself takes many more values for dtypes, and evaluates some as Python's literals.
    """
    if not isinstance(name, str) or not DTYPE.fullmatch(name):
        raise NotPlain(f"{str(name)[:50]!r} names no dtype of numbers or times")
    try:
        return np.dtype(name)
    except TypeError as error:
        raise NotPlain(str(error)) from None
