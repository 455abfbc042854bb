"""Zero-copy small reads on a GPU: kernels read ids and write answers in page-locked memory of the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.structures import Structure

__all__ = ["MOST", "MappedReads"]

MOST = 1 << 10  #: maximum ids, or arcs, per read; more are copied, since each lane would cross the bus for its own
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
        self._offsets = device.mailbox(MOST + 1)
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

    def rows(self, edges: Structure, first: int, ids: np.ndarray) -> dict[str, np.ndarray] | None:
        """Return rows of a structure, as `Shard.neighbors` does; None if they have more than `MOST` arcs."""
        # Read the degrees, and sum them here.
        n, offsets, (words, mapped) = len(ids), np.zeros(len(ids) + 1, np.int64), self._offsets
        self.ask(edges.degrees, np.uint32, first, ids).cumsum(out=offsets[1:])
        total = int(offsets[-1])
        if total > MOST:
            return None

        # Copy the rows, whose numbers are still in the first column.
        (_, dst, weight), (_, dst_there, weight_there) = self._columns(total, np.float32)
        if total:
            words[:n] = offsets[:-1]
            rows = self._columns(n, np.uint32)[1][0]
            edges.copy_rows(rows, mapped[:n], dst_there, weight_there if edges.weighted else None)
            self._device.synchronize()
        answer = {"offsets": offsets, "dst": dst.copy()}
        return {**answer, "weight": weight.copy()} if edges.weighted else answer
