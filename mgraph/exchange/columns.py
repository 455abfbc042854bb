"""Columns of several dtypes as bytes, so that an exchange sends them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgraph.device import Array, Device

__all__ = ["join_columns", "split_columns"]


def join_columns(device: Device, columns: Sequence[Array]) -> Array:
    """Return the bytes of columns of equal length, one after another, widest dtypes first. O(n).

    They are padded to a multiple of 8: an exchange may receive the parts of several ranks behind each other, and
    kernels read aligned columns.
    """
    parts = [column.view(np.uint8) for column in columns]
    if padding := -sum(len(part) for part in parts) % 8:
        parts.append(device.zeros(padding, np.uint8))
    return device.concatenate(parts)


def split_columns(data: Array, dtypes: Mapping[str, Any]) -> dict[str, Array]:
    """Return the columns that `join_columns` has joined, by name, as views. Their items have 8 bytes or more in all."""
    n, at, columns = len(data) // sum(np.dtype(dtype).itemsize for dtype in dtypes.values()), 0, {}
    for name, dtype in dtypes.items():
        end = at + n * np.dtype(dtype).itemsize
        columns[name], at = data[at:end].view(dtype), end
    return columns
