"""Zero-copy small reads on a GPU: kernels read ids and write answers in page-locked memory of the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from mgraph.device import Array, Device

__all__ = ["MOST", "MappedReads"]

MOST = 1 << 10  #: ids of a read; more are copied, since each kernel's lane would cross the bus for its own
COLUMNS = 3  #: of 4 bytes: two of ids at most, and the answers


class MappedReads:
    """Memory that one shard's small reads use in turn: see `Device.mailbox` for what a copy would take.

    Parameters
    ----------
    device : Device
        A GPU, whose stream is waited for before the memory is used again.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._words, self._mapped = device.mailbox(COLUMNS * MOST // 2)
        self._columns = lru_cache(16)(self._cut)  # a slice of an array of a GPU takes 1 us

    def _cut(self, n: int, kind: Any) -> tuple[list[np.ndarray], list[Array]]:
        """On the host and on the device: two columns of `n` ids, and one of answers; on the device a bool is a byte."""
        kinds = np.uint32, np.uint32, kind
        host = [self._words[i * MOST // 2 :].view(of)[:n] for i, of in enumerate(kinds)]
        bytes_ = np.uint32, np.uint32, np.uint8 if kind is np.bool_ else kind
        return host, [self._mapped[i * MOST // 2 :].view(of)[:n] for i, of in enumerate(bytes_)]

    def ask(self, read: Callable[..., object], kind: Any, first: int, *ids: np.ndarray) -> np.ndarray:
        """What ``read(*ids, checked=True, out=answers)`` answers: an array of this kind, on the host.

        `first` is subtracted from the first column, so that its ids become rows.
        """
        host, device = self._columns(len(ids[0]), kind)
        np.subtract(ids[0], first, out=host[0], casting="unsafe")
        for column, given in zip(host[1:-1], ids[1:], strict=False):
            column[:] = given
        read(*device[: len(ids)], checked=True, out=device[-1])
        self._device.synchronize()
        return host[-1].copy()
