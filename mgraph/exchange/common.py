"""Common parts of all exchanges: checks of arguments, codes of calls, and collectives by swaps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache

import numpy as np

from mgraph.errors import ExchangeError, InvalidOption
from mgraph.exchange.contract import Array, Exchange

__all__ = [
    "CODE_BITS",
    "SwapExchange",
    "another_call",
    "call_code",
    "call_name",
    "check_addresses",
    "check_parts",
]

CODE_BITS = 16  #: bits of a call's code

_CALLS = ("alltoallv", "allgather", "sum", "min", "max", "swap", "carry", "least")


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


class SwapExchange(Exchange):
    """Exchange whose collectives are swaps: each rank sends a part to every other one."""

    def alltoallv(self, parts: Sequence[Array], lengths: np.ndarray | None = None) -> list[Array]:
        """Implement `Exchange.alltoallv`. Waits for the calling thread's stream before it sends data."""
        check_parts(parts, self.size)
        return self._swap("alltoallv", parts)

    def allgather(self, part: Array) -> list[Array]:
        """Implement `Exchange.allgather`. Waits for the calling thread's stream before it sends data."""
        return self._swap("allgather", [part] * self.size)

    def gather_values(self, values: np.ndarray, call: str) -> list[np.ndarray]:
        """Implement `Exchange.gather_values`."""
        return self._swap(call, [values] * self.size, on_host=True)

    def swap_values(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Implement `Exchange.swap_values`."""
        return self._swap("swap", parts, on_host=True)

    @abstractmethod
    def _swap(self, call: str, parts: Sequence[Array], on_host: bool = False) -> list[Array]:
        """Send ``parts[r]`` to every other rank r, and return a part from each. The own part stays in its place."""


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
