"""Session messages on Dask's comms: dicts whose arrays are sent as separate frames, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed.protocol import to_serialize

from mgraph.protocol import Message, from_dict, to_dict

__all__ = ["LIST_HANDLER", "SESSION_HANDLER", "decode", "encode"]

SESSION_HANDLER = "mgraph_session"  #: the name of the comm handler that the plugin adds to a worker for sessions
LIST_HANDLER = "mgraph_published"  #: and the name of the one that says which graphs are published there

decode = from_dict


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
    return to_serialize(value)
