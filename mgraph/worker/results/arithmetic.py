"""Elementwise operations on the columns of results, and reductions of a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.worker.shard.results import Result
from mgraph.worker.shard.shard import Shard

__all__ = ["REDUCTIONS", "combine", "reduced"]

#: reductions of a part of a column on the device; floats in float64
REDUCTIONS: dict[str, Callable[[Any, Array], Any]] = {
    "sum": lambda xp, a: a.sum(dtype=np.float64 if a.dtype.kind == "f" else np.int64),
    "magnitudes": lambda xp, a: xp.abs(a).sum(dtype=np.float64),
    "squares": lambda xp, a: xp.square(a, dtype=np.float64).sum(),
    "min": lambda xp, a: a.min(),
    "max": lambda xp, a: a.max(),
}


def combine(shard: Shard, operation: str, like: str, operands: Sequence[dict[str, Any]]) -> Result:
    """Compute a column by a NumPy ufunc or "where", in the range of the result `like`.

    An operand is a column of a result in the same range (``result`` and ``column``), an array of ``values``, or a
    ``number``, with the name of its ``dtype`` if it was NumPy's.
    """
    device = shard.device
    arrays = [_operand(shard, operand) for operand in operands]
    room = sum(8 * array.size for array in arrays if hasattr(array, "size"))
    with device.taking(room, f"the {operation} of results"), np.errstate(all="ignore"):
        try:
            values = getattr(device.xp, operation)(*arrays)
        except (OverflowError, TypeError, ValueError) as error:  # for example, the number does not fit an integer dtype
            kinds = ", ".join(str(getattr(array, "dtype", array)) for array in arrays)
            raise InvalidOption(f"{operation} of {kinds}: {error}") from None
    return Result({"value": values}, shard.result(like).lo)


def _operand(shard: Shard, operand: dict[str, Any]) -> Any:
    """Return an operand's array or number."""
    if "result" in operand:
        return shard.result(operand["result"]).column(operand["column"])
    if "values" in operand:
        return shard.device.asarray(operand["values"])
    number = operand["number"]
    return np.dtype(operand["dtype"]).type(number) if "dtype" in operand else number


def reduced(device: Device, values: Array, kind: str) -> list[Any]:
    """Reduce each part of a column by a function of `REDUCTIONS`. One read-back per part."""
    flat = values.reshape(-1)
    parts = [flat[part] for part in device.slices(len(flat))]
    with np.errstate(all="ignore"):  # an overflowing sum is inf, without a warning
        return [device.to_host(REDUCTIONS[kind](device.xp, part)).item() for part in parts if len(part)]
