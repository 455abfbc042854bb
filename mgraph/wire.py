"""Session messages on Dask's comms: dicts with arrays as separate frames.

Small arrays are sent inside the dict, since a frame costs both sides more than 100 us.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed.protocol import to_serialize

from mgraph.plain import array_fields, array_or_dict
from mgraph.protocol import Message, from_dict, to_dict

__all__ = ["SESSION_HANDLER", "decode", "encode"]

SESSION_HANDLER = "mgraph_session"  #: the name of the comm handler that the plugin adds to a worker for sessions

SMALL = 1 << 10  #: maximum bytes of an array of numbers that is sent inside its message
#: types that are checked for each value of a message; a union in the check would be made anew each time, in 0.3 us
SINGLE, SEQUENCES = (type(None), bool, int, float, str, bytes), (list, tuple)


def decode(fields: dict[str, Any]) -> Any:
    """Decode a message read from a comm. Small arrays are writable."""
    return from_dict(_whole(fields))


def encode(message: Message) -> dict[str, Any]:
    """Encode `message` as a dict that a comm can write."""
    return {name: _marked(value) for name, value in to_dict(message).items()}


def _marked(value: Any) -> Any:
    """Mark the arrays in `value` as frames, and convert NumPy scalars to Python's."""
    if isinstance(value, SINGLE):
        return value
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    if isinstance(value, SEQUENCES):
        return [_marked(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    # Small arrays travel inside the message, large ones as frames.
    if isinstance(value, np.ndarray) and value.nbytes <= SMALL and value.dtype.kind in "biuf":
        return array_fields(value)
    return to_serialize(value)


def _whole(value: Any) -> Any:
    """Restore the arrays that `_marked` encoded in `value`."""
    if isinstance(value, dict):
        whole = array_or_dict(value)
        return {key: _whole(item) for key, item in value.items()} if whole is value else whole
    if isinstance(value, SEQUENCES):
        return type(value)(map(_whole, value))
    return value
