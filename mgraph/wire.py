"""Session messages on Dask's comms: dicts whose arrays are sent as separate frames, without a copy.

Small arrays are sent inside of the dict, since a frame costs both sides more than 100 us.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed.protocol import to_serialize

from mgraph.protocol import Message, from_dict, to_dict

__all__ = ["SESSION_HANDLER", "decode", "encode"]

SESSION_HANDLER = "mgraph_session"  #: the name of the comm handler that the plugin adds to a worker for sessions

SMALL = 1 << 10  #: bytes up to which an array of numbers is sent inside of its message
ARRAY = "mgraph array"  #: the one key of the dict that stands there for it


def decode(fields: dict[str, Any]) -> Any:
    """The message that a comm has read. Small arrays may be written to; others are as the comm delivers them."""
    return from_dict(_whole(fields))


def encode(message: Message) -> dict[str, Any]:
    """`message` as a dict that a comm can write."""
    return {name: _marked(value) for name, value in to_dict(message).items()}


def _marked(value: Any) -> Any:
    """`value` with its arrays marked as frames, and NumPy scalars as Python ones."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.nbytes <= SMALL and value.dtype.kind in "biuf":
        return {ARRAY: [value.dtype.str, value.shape, value.tobytes()]}
    return to_serialize(value)


def _whole(value: Any) -> Any:
    """`value` with the arrays that `_marked` made part of it."""
    if isinstance(value, dict):
        if ARRAY in value:
            dtype, shape, data = value[ARRAY]
            return np.frombuffer(bytearray(data), dtype).reshape(shape)
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_whole, value))
    return value
