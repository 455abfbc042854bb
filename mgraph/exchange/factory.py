"""Opening the exchange of a rank by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mgraph.device import Device
from mgraph.exchange.comm_dispatcher import CommDispatcher
from mgraph.exchange.contract import Exchange
from mgraph.exchange.grouped import GroupedExchange
from mgraph.exchange.groups import Groups
from mgraph.exchange.loopback import Loopback
from mgraph.exchange.peer import PeerExchange
from mgraph.exchange.sockets import SocketExchange
from mgraph.exchange.ucx import UcxExchange

__all__ = ["make_exchange"]


def make_exchange(
    name: str,
    rank: int,
    size: int,
    aborted: Callable[[], bool],
    device: Device,
    *,
    dispatcher: CommDispatcher,
    key: tuple[str, int],
    patience: float,
    names: Sequence[int] | None = None,
) -> Exchange:
    """Open the exchange `name`. It contacts no rank yet.

    Parameters
    ----------
    name : str
        One of `EXCHANGES` except "auto"; with groups as `Groups` writes them.
    rank, size : int
    aborted : callable
        Polled by its waits.
    device : Device
    dispatcher : CommDispatcher
        Accepts the connections of other workers, for "tcp".
    key : (str, int)
        The graph and the attempt. The dispatcher finds this exchange by it.
    patience : float
        Seconds after which a silent rank counts as lost.
    names : sequence of int, optional
        The numbers of the ranks in messages to users; by default 0 .. size - 1.
    """
    if groups := Groups.parse(name, size):

        def open_part(name: str, ranks: Sequence[int], pair: str = "") -> Exchange:
            graph, attempt = key
            return make_exchange(
                name, ranks.index(rank), len(ranks), aborted, device,
                dispatcher=dispatcher, key=(f"{graph}{pair}", attempt), patience=patience, names=ranks,
            )  # fmt: skip

        return GroupedExchange(rank, size, aborted, device, groups=groups, open_part=open_part)
    if name == "loopback":
        return Loopback(aborted)
    if name == "peer":
        return PeerExchange(rank, size, aborted, device, patience=patience, names=names)
    if name == "ucx":
        return UcxExchange(rank, size, aborted, device, patience=patience, names=names)
    return SocketExchange(rank, size, aborted, device, dispatcher=dispatcher, key=key, patience=patience, names=names)
