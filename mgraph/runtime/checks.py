"""What is checked at the user's handle, before a worker is asked."""

from __future__ import annotations

import operator
from numbers import Real
from typing import Any

from mgraph.batch import MAX_VERTICES
from mgraph.errors import CapacityError, InvalidOption

__all__ = ["check_count", "check_number", "check_whole"]


def check_whole(value: Any, name: str) -> int:
    """`value` as a whole number of 0 or more; `InvalidOption` for anything else."""
    try:
        n = operator.index(value)
    except TypeError:
        raise InvalidOption(f"{name} is {value!r}; it is a whole number") from None
    if isinstance(value, bool) or n < 0:
        raise InvalidOption(f"{name} is {value!r}; it is 0 or more")
    return n


def check_number(value: Any, name: str) -> float:
    """`value` as a number; `InvalidOption` for anything else."""
    try:
        if isinstance(value, Real) and not isinstance(value, bool):
            return float(value)
    except OverflowError:  # an int of hundreds of digits
        pass
    raise InvalidOption(f"{name} is {value!r}; it is a number that float64 holds")


def check_count(value: Any, name: str) -> int:
    """`value` as a number of things that have ids; `CapacityError` for more than there are ids."""
    n = check_whole(value, name)
    if n > MAX_VERTICES:
        raise CapacityError(f"{name} is {n}; 32-bit ids allow {MAX_VERTICES}")
    return n
