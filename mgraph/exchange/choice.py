"""Choice of a graph's exchange: the requested one, or the fastest that is safe on all workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgraph.errors import DeviceError, InvalidOption
from mgraph.exchange.groups import NETWORKS, WITHIN, Apart, Groups, network_of
from mgraph.facade import warn

__all__ = [
    "EXCHANGES",
    "IN_CLEAR",
    "MOST_WORKERS",
    "RETIRED",
    "best_exchange",
    "check_exchange",
    "choose_exchange",
    "encrypted",
    "why_unusable",
]

EXCHANGES = ("auto", "loopback", "peer", *(WITHIN + network for network in NETWORKS), *NETWORKS)
IN_CLEAR = ("ucx",)  #: exchanges without encryption, even on a cluster with TLS
HERE = Apart()  #: all workers map each other's memory
MOST_WORKERS = 64  #: the most workers of a graph, for which the slots of a meeting have room
RETIRED = {"nccl": "auto"}  #: old names, accepted for another release with a warning, and their replacements


def check_exchange(exchange: str, size: int) -> None:
    """Raise `InvalidOption` if `exchange` is unknown, cannot connect `size` workers, or if these are too many.

    Warns
    -----
    FutureWarning
        `exchange` is one of `RETIRED`.
    """
    if size > MOST_WORKERS:
        raise InvalidOption(f"{size} workers were given for a graph; at most {MOST_WORKERS} can hold one")
    if exchange in RETIRED:
        warn(
            f'mgraph has no exchange "{exchange}" any more; the graph takes the one that "{RETIRED[exchange]}" takes. '
            f'Write exchange="{RETIRED[exchange]}": the next release refuses "{exchange}"',
            FutureWarning,
        )
    elif exchange.partition(":")[0] not in EXCHANGES:
        raise InvalidOption(f"exchange {exchange!r} is none of {', '.join(map(repr, EXCHANGES))}")
    if ":" in exchange and Groups.parse(exchange, size) is None:
        raise InvalidOption(f"exchange {exchange!r} has no groups; write them after {WITHIN}tcp: or {WITHIN}ucx:")
    if exchange == "loopback" and size > 1:
        raise InvalidOption(f"exchange 'loopback' is for 1 worker, and the graph has {size}")


def choose_exchange(
    exchange: str, device: str, workers: Sequence[str], inspections: Sequence[dict[str, Any]], apart: Apart = HERE
) -> str:
    """Return the exchange to use: `exchange` itself, or the best one for "auto". Groups are written behind its name.

    Parameters
    ----------
    exchange : str
        One of `EXCHANGES`.
    device : "cpu" | "cuda"
    workers : sequence of str
        The workers' addresses.
    inspections : sequence of dict
        For each worker, whether `ucx` is installed.
    apart : Apart
        Why the workers cannot map each other's memory, and which of them can.

    Raises
    ------
    DeviceError
        UCX was asked for, and a worker does not have it; or peer, and the workers are apart.

    Warns
    -----
    UserWarning
        UCX was asked for on a cluster with TLS.
    """
    if network_of(exchange) in IN_CLEAR and encrypted(workers):
        warn(
            f'exchange "{exchange}" sends the edges of the graph unencrypted between workers of a cluster that uses '
            'TLS, and UCX listens on every interface without authentication; exchange="tcp" is encrypted',
        )
    if why := why_unusable(exchange, workers, inspections, apart):
        raise DeviceError(f'exchange "{exchange}" was asked for and {why}')
    if exchange == "auto":
        return best_exchange(device, workers, inspections, apart)[0]
    if exchange.startswith(WITHIN) and ":" not in exchange:
        return _with_groups(network_of(exchange), apart) if apart else "peer"
    return exchange


def _with_groups(network: str, apart: Apart) -> str:
    """Return the exchange over a network that uses shared memory within groups, if several workers are in one."""
    several = len(set(apart.groups)) < len(apart.groups)
    return str(Groups(apart.groups, network)) if several else network


def best_exchange(
    device: str, workers: Sequence[str], inspections: Sequence[dict[str, Any]], apart: Apart = HERE
) -> tuple[str, str]:
    """Return the exchange of "auto", and the reason.

    Parameters as in `choose_exchange`. It is loopback for one worker; peer if the workers can map each other's memory;
    else peer within each group, and between groups tcp on a cluster with TLS, because UCX sends unencrypted; ucx on
    GPUs if every worker has UCXX; else tcp.
    """
    # Ranks that share memory need no network.
    if len(workers) == 1:
        return "loopback", "a single worker exchanges nothing"
    if not apart:
        return "peer", "the workers map each other's memory"
    network, why = _network(device, workers, inspections)
    return _with_groups(network, apart), f"the workers cannot map each other's memory ({apart.why}), and {why}"


def _network(device: str, workers: Sequence[str], inspections: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return the exchange between workers that do not share memory, and the reason."""
    if device != "cuda":
        return "tcp", "they run on the CPU"
    if encrypted(workers):
        return "tcp", "the cluster uses TLS, which UCX does not"
    without = [address for address, worker in zip(workers, inspections, strict=True) if not worker["ucx"]]
    if without:
        return "tcp", f"these have no UCXX: {', '.join(without)}"
    return "ucx", "every worker has UCXX"


def why_unusable(
    exchange: str, workers: Sequence[str], inspections: Sequence[dict[str, Any]], apart: Apart = HERE
) -> str:
    """Return why the workers cannot use `exchange`, or "".

    Parameters as in `choose_exchange`.
    """
    if exchange == "peer" and apart:
        return f"the workers cannot map each other's memory: {apart.why}; it is for workers of one host and one user"
    without = [address for address, worker in zip(workers, inspections, strict=True) if not worker["ucx"]]
    if network_of(exchange) == "ucx" and without:
        return f'these workers have no UCXX (pip install "dask-mgraph[cuda13]"): {", ".join(without)}'
    return ""


def encrypted(workers: Sequence[str]) -> bool:
    """Return True if the workers' addresses are of a cluster with TLS."""
    return any(address.startswith("tls://") for address in workers)
