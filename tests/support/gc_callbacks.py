"""What another thread may do within an allocation: a garbage collection there runs callbacks, and Python may switch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["in_allocations"]


@contextmanager
def in_allocations(act: Callable[[], object]) -> Iterator[None]:
    """Call it within allocations of the block, in place of another thread."""

    def collected(phase: str, info: dict[str, int]) -> None:
        act()

    threshold = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collected)
