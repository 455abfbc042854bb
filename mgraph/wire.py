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
SINGLE = frozenset((type(None), bool, int, float, str, bytes))  #: types of most values, which are sent as they are
BASES, SEQUENCES = tuple(SINGLE), (list, tuple)


def decode(fields: dict[str, Any]) -> Any:
    """Decode a message read from a comm. Small arrays are writable."""
    return from_dict(_whole(fields))


def encode(message: Message) -> dict[str, Any]:
    """Encode `message` as a dict that a comm can write."""
    return _marked(to_dict(message))


def _marked(value: Any) -> Any:
    """Mark the arrays in `value` as frames, and convert NumPy scalars to Python's."""
    if isinstance(value, dict):
        return {key: item if type(item) in SINGLE else _marked(item) for key, item in value.items()}
    if isinstance(value, SEQUENCES):
        return [item if type(item) in SINGLE else _marked(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, BASES):
        return value
    # Small arrays travel inside the message, large ones as frames.
    if isinstance(value, np.ndarray) and value.nbytes <= SMALL and value.dtype.kind in "biuf":
        return array_fields(value)
    return to_serialize(value)


def _whole(value: Any) -> Any:
    """Restore the arrays that `_marked` encoded in `value`."""
    if isinstance(value, dict):
        whole = array_or_dict(value)
        if whole is not value:
            return whole
        return {key: item if type(item) in SINGLE else _whole(item) for key, item in value.items()}
    if isinstance(value, SEQUENCES):
        return type(value)([item if type(item) in SINGLE else _whole(item) for item in value])
    return value
