"""Zero-copy small reads on a GPU: kernels read ids and write answers in page-locked memory of the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from mgraph.device import Array, Device

__all__ = ["MOST", "MappedReads"]

MOST = 1 << 10  #: maximum ids per read; more are copied, since each lane would cross the bus for its own
COLUMNS = 3  #: columns of 4 bytes: at most two of ids, and the answers


class MappedReads:
    """Mapped memory of a shard's small reads, which avoids the copies (`Device.mailbox`).

    Parameters
    ----------
    device : Device
        A GPU. Each read waits for its stream before the memory is reused.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._words, self._mapped = device.mailbox(COLUMNS * MOST // 2)
        self._columns = lru_cache(16)(self._cut)  # a slice of an array of a GPU takes 1 us

    def _cut(self, n: int, kind: Any) -> tuple[list[np.ndarray], list[Array]]:
        """Return columns of `n` ids and of answers, on host and device."""
        kinds = np.uint32, np.uint32, kind
        host = [self._words[i * MOST // 2 :].view(of)[:n] for i, of in enumerate(kinds)]
        # On the device a bool is a byte.
        bytes_ = np.uint32, np.uint32, np.uint8 if kind is np.bool_ else kind
        return host, [self._mapped[i * MOST // 2 :].view(of)[:n] for i, of in enumerate(bytes_)]

    def ask(self, read: Callable[..., object], kind: Any, first: int, *ids: np.ndarray) -> np.ndarray:
        """Call ``read(*ids, checked=True, out=answers)`` and return the answers on the host.

        `kind` is their dtype. `first` is subtracted from the first column, so that its ids become rows.
        """
        host, device = self._columns(len(ids[0]), kind)
        np.subtract(ids[0], first, out=host[0], casting="unsafe")
        for column, values in zip(host[1:-1], ids[1:], strict=False):
            column[:] = values
        read(*device[: len(ids)], checked=True, out=device[-1])
        self._device.synchronize()
        return host[-1].copy()
