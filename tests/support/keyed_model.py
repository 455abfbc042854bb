"""Users' keys for the numbers of a model."""

from __future__ import annotations

from collections.abc import Iterable


def keys_of(kind: str, numbers: Iterable[int]) -> list:
    """Sparse keys: of numbers negative and huge ones, of strings an empty one and such that are no ASCII."""
    if kind == "int64":
        return [int(i) * (2**52 + 7) * (-1) ** int(i) for i in numbers]
    return ["" if i == 0 else f"{'é' * int(i % 5)}{i}" for i in numbers]
