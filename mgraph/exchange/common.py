"""Common parts of all exchanges: checks of arguments, and codes of calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from mgraph.errors import InvalidOption
from mgraph.exchange.contract import Array, ExchangeError

__all__ = [
    "CODE_BITS",
    "another_call",
    "call_code",
    "call_name",
    "check_addresses",
    "check_parts",
]

CODE_BITS = 16  #: bits of a call's code

_CALLS = ("alltoallv", "allgather", "sum", "min", "max", "swap")


def check_addresses(addresses: Sequence[bytes], size: int) -> None:
    """Raise `InvalidOption` unless each rank has an address."""
    if len(addresses) != size:
        raise InvalidOption(f"{len(addresses)} addresses were given for {size} ranks; each rank needs one")


def check_parts(parts: Sequence[Array], size: int) -> np.dtype:
    """Return the dtype of `parts`. O(size).

    Raises `ExchangeError` unless each rank has a part, and all parts have one dtype.
    """
    if len(parts) != size:
        raise ExchangeError(f"{len(parts)} parts were given for {size} ranks; each rank gets one, which may be empty")
    dtype = parts[0].dtype
    for rank, part in enumerate(parts):
        if part.dtype != dtype:
            raise ExchangeError(
                f"the part for rank {rank} has dtype {part.dtype} and that for rank 0 has {dtype}; all need the same"
            )
    return dtype


@cache
def call_code(call: str, dtype: np.dtype) -> int:
    """Return a number of `CODE_BITS` bits for a call and its dtype.

    Ranks compare it to detect different calls.
    """
    return _CALLS.index(call) << 13 | (dtype.itemsize & 63) << 7 | ord(dtype.kind)


def call_name(code: int) -> str:
    """Return a code as text, such as "alltoallv of uint32"."""
    call, items, kind = code >> 13, code >> 7 & 63, chr(code & 127)
    try:
        return f"{_CALLS[call]} of {np.dtype(f'{kind}{items}')}"
    except (IndexError, TypeError):
        return f"call {code:#x}"


def another_call(here: str, code: int, rank: int, theirs: int) -> ExchangeError:
    """Return the error for a rank that is in another call.

    `here` describes this rank.
    """
    return ExchangeError(f"{here} is in {call_name(code)} and rank {rank} in {call_name(theirs)}")
