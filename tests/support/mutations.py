"""Mutated bytes: those of a valid input with a few random changes, of the kinds that break parsers."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence

from promise_records import note

__all__ = ["PICKLE", "Runs", "hostile", "mutated"]

#: numbers at the limits of their types, little-endian
LIMITS = [
    (n & (1 << 8 * width) - 1).to_bytes(width, "little")
    for width in (1, 2, 4, 8)
    for n in (0, 1, -1, 1 << 8 * width - 1, (1 << 8 * width - 1) - 1)
]


def mutated(data: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Change a few bytes of `data`, cut, repeat or insert some, or put in a piece of one of the `others`."""
    after = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at, n = rng.randrange(len(after) + 1), rng.randrange(1, 17)
        match rng.randrange(9):
            case 0:
                after[at : at + 1] = rng.randbytes(1)
            case 1 if after:
                after[at % len(after)] ^= 1 << rng.randrange(8)
            case 2:
                limit = rng.choice(LIMITS)
                after[at : at + len(limit)] = limit
            case 3:
                after[at:at] = rng.randbytes(n)
            case 4:
                del after[at : at + n]
            case 5:
                del after[at:]
            case 6:
                after[at : at + n] = after[at : at + n] * rng.randrange(2, 5)
            case 7:
                end = min(len(after), at + rng.randrange(1, 2 + len(after)))
                after[at:end] = bytes(end - at)
            case _ if others:
                other = rng.choice(others)
                first = rng.randrange(len(other) + 1)
                after[at:at] = other[first : first + rng.randrange(1, 257)]
    return bytes(after)


class Runs:
    """Pickles as a call that leaves a mark."""

    ran = False

    @classmethod
    def run(cls) -> None:
        cls.ran = True

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return Runs.run, ()


PICKLE = pickle.dumps(Runs())  #: bytes that run code where they are unpickled


def hostile(
    read: Callable[[bytes], object], valid: Sequence[bytes], count: int, allowed: tuple[type[Exception], ...]
) -> None:
    """Read mutated inputs: each is read, or refused by an allowed error, and none runs code."""
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    rng, outcomes = random.Random(seed), Counter[str]()
    for number in range(count):
        data = mutated(rng.choice(valid), rng, [PICKLE, *valid])
        try:
            read(data)
            outcomes["read"] += 1
        except allowed as error:
            outcomes[type(error).__name__] += 1
        except Exception as error:
            error.add_note(f"input {number} of seed {seed}: {data[:2000]!r}")
            raise
    assert not Runs.ran
    print(count, "inputs:", dict(outcomes))
    note("hostile", inputs=count)
