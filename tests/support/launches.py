"""Watch the launches of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mgraph.kernels import Kernel

__all__ = ["watched"]


@contextmanager
def watched(note: Callable[[str], object]) -> Iterator[None]:
    """Call `note` with the kernel's name before each launch in this block; of bound kernels, if bound in it."""
    launch, bind = Kernel.__call__, Kernel.bind

    def launching(kernel: Kernel, items: int, **fields: Any) -> None:
        if items > 0:
            note(kernel.source.name)
        launch(kernel, items, **fields)

    def binding(kernel: Kernel, **fixed: Any) -> Any:
        bound = bind(kernel, **fixed)

        def launching_bound(items: int, **fields: Any) -> None:
            if items > 0:
                note(kernel.source.name)
            bound(items, **fields)

        return launching_bound

    with patch.object(Kernel, "__call__", launching), patch.object(Kernel, "bind", binding):
        yield
