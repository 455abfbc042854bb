"""Opening the exchange of a rank by its name."""

from __future__ import annotations

from collections.abc import Callable

from mgraph.device import Device
from mgraph.exchange.contract import Exchange
from mgraph.exchange.hub import Hub
from mgraph.exchange.loopback import Loopback
from mgraph.exchange.nccl import NcclExchange
from mgraph.exchange.peer import PeerExchange
from mgraph.exchange.tcp import TcpExchange
from mgraph.exchange.ucx import UcxExchange
from mgraph.exchange.ucxx_api import ucx_installed

__all__ = ["make_exchange"]


def make_exchange(
    name: str,
    rank: int,
    size: int,
    aborted: Callable[[], bool],
    device: Device,
    *,
    hub: Hub,
    key: tuple[str, int],
    patience: float,
) -> Exchange:
    """Open the exchange that `choose_exchange` has named; it contacts no rank yet.

    Parameters
    ----------
    name : str
        One of `EXCHANGES`, but for "auto".
    rank, size : int
    aborted : callable
        Polled by its waits.
    device : Device
    hub : Hub
        Accepts the connections of other workers, for "tcp".
    key : (str, int)
        The graph and the attempt, by which the hub knows this exchange.
    patience : float
        Seconds after which a silent rank counts as lost.
    """
    if name == "loopback":
        return Loopback(aborted)
    if name == "peer":
        return PeerExchange(rank, size, aborted, device, patience=patience)
    if name == "ucx":
        return UcxExchange(rank, size, aborted, device, patience=patience)
    if name == "nccl":  # counts and votes are in host memory, which NCCL does not send
        small, host = "ucx" if ucx_installed() else "tcp", Device("cpu")
        companion = make_exchange(small, rank, size, aborted, host, hub=hub, key=key, patience=patience)
        return NcclExchange(rank, size, aborted, device, small=companion, patience=patience)
    return TcpExchange(rank, size, aborted, device, hub=hub, key=key, patience=patience)
