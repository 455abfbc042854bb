"""Pack plain values: numbers, text, bytes, sequences, dicts and arrays of numbers.

Unpacking runs no code, whatever the bytes are. Messages that mgraph's processes read by themselves have this form. The
format is MessagePack.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import msgpack
import numpy as np

__all__ = ["MOST_BYTES", "NotPlain", "array_fields", "array_or_dict", "pack", "pack_message", "plain_dtype", "unpack"]

ARRAY = "mgraph array"  #: key of the dict that stands for an array
KINDS = "biufmM"  #: kinds of NumPy's dtypes that are plain
DTYPE = re.compile(rf"[<>|=]?[{KINDS}]\d{{1,2}}(\[[0-9A-Za-z]{{1,12}}\])?")
#: dtypes of the vectors that are an extension of MessagePack each in messages, by the extension's code
VECTORS = tuple(map(np.dtype, ("?", "<u1", "<u2", "<u4", "<u8", "<i1", "<i2", "<i4", "<i8", "<f4", "<f8")))
CODES = {dtype: code for code, dtype in enumerate(VECTORS)}
MOST_BYTES = 1 << 16  #: of a message

_PACKERS = threading.local()


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


def pack_message(value: Any) -> bytes:
    """Return a plain value as bytes, in a shorter form than that of `pack`, which is on disks, too.

    Raises
    ------
    NotPlain
        As in `pack`, or an array has more than `MOST_BYTES`.
    """
    # A packer has a large buffer, and is for one thread.
    if (packer := getattr(_PACKERS, "packer", None)) is None:
        packer = _PACKERS.packer = msgpack.Packer(default=_in_message)
    try:
        data: bytes = packer.pack(value)
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


def _in_message(value: Any) -> Any:
    if type(value) is np.ndarray:
        if value.nbytes > MOST_BYTES:
            raise TypeError(f"an array of {value.nbytes} bytes is too large for a message")
        if value.ndim == 1 and (code := CODES.get(value.dtype)) is not None:
            return tuple.__new__(msgpack.ExtType, (code, value.tobytes()))  # its own constructor checks both: 1 us
    return _plain(value)


def _vector(code: int, data: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(data), VECTORS[code])


def unpack(data: bytes) -> Any:
    """Return the value of bytes from `pack` or `pack_message`.

    Sequences are tuples, and arrays are writable copies.

    Raises
    ------
    NotPlain
        `data` is no packed value.
    """
    try:
        return msgpack.unpackb(data, object_hook=array_or_dict, ext_hook=_vector, use_list=False, strict_map_key=False)
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
