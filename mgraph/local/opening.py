"""The creation of a graph in this process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from mgraph.client.directory import Directory
from mgraph.client.numbering import Numbering
from mgraph.client.options import Options, choose_device, shape
from mgraph.client.parts import AsParts
from mgraph.errors import InvalidOption
from mgraph.local.coordinator import Coordinator
from mgraph.local.parts import as_parts

__all__ = ["open_graph"]


def open_graph(
    options: Options, workers: Sequence[str] | None, numbering: Callable[[int], Numbering]
) -> tuple[Directory, Options, AsParts]:
    """A new graph on this process's GPU or CPU. See `mgraph.client.placement.open_graph` for what is returned.

    Parameters
    ----------
    options : Options
    workers : None
        Workers belong to a cluster.
    numbering : callable
        Makes the numbering of the vertices for a number of ranks, here one.

    Raises
    ------
    InvalidOption
        Workers are named, or the exchange is one between processes.
    DeviceError
        A GPU was asked for and there is none, or there is no compiler.
    CapacityError
        There is too little memory.
    """
    if workers is not None:
        raise InvalidOption(f"workers is {workers!r}; a graph without a Dask client is in this process and has none")
    if options.exchange not in ("auto", "loopback"):
        raise InvalidOption(
            f'exchange {options.exchange!r} connects workers; a graph without a Dask client has "auto" or "loopback"'
        )
    now, coordinator = numbering(1), Coordinator(uuid.uuid4().hex[:12])
    try:
        device = choose_device(options.device, coordinator.addresses, coordinator.call("inspect"))
        options = replace(options, device=device, exchange="loopback")
        coordinator.call("create", shape(options, now))
    except BaseException:
        coordinator.close()
        raise
    return Directory(coordinator, now), options, as_parts
