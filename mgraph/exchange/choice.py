"""Choice of a graph's exchange: the requested one, or the fastest that is safe on all workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgraph.errors import DeviceError, InvalidOption
from mgraph.facade import warn

__all__ = [
    "EXCHANGES",
    "IN_CLEAR",
    "RETIRED",
    "best_exchange",
    "check_exchange",
    "choose_exchange",
    "encrypted",
    "why_unusable",
]

EXCHANGES = ("auto", "loopback", "peer", "tcp", "ucx")
IN_CLEAR = ("ucx",)  #: exchanges without encryption, even on a cluster with TLS
RETIRED = {"nccl": "auto"}  #: old names, accepted for another release with a warning, and their replacements


def check_exchange(exchange: str, size: int) -> None:
    """Raise `InvalidOption` if `exchange` is unknown, or cannot connect `size` workers.

    Warns
    -----
    FutureWarning
        `exchange` is one of `RETIRED`.
    """
    if exchange in RETIRED:
        warn(
            f'mgraph has no exchange "{exchange}" any more; the graph takes the one that "{RETIRED[exchange]}" takes. '
            f'Write exchange="{RETIRED[exchange]}": the next release refuses "{exchange}"',
            FutureWarning,
        )
    elif exchange not in EXCHANGES:
        raise InvalidOption(f"exchange {exchange!r} is none of {', '.join(map(repr, EXCHANGES))}")
    if exchange == "loopback" and size > 1:
        raise InvalidOption(f"exchange 'loopback' is for 1 worker, and the graph has {size}")


# Warn, check, then choose.
def choose_exchange(
    exchange: str, device: str, workers: Sequence[str], inspections: Sequence[dict[str, Any]], apart: str = ""
) -> str:
    """Return the exchange to use: `exchange` itself, or the best one for "auto".

    Parameters
    ----------
    exchange : str
        One of `EXCHANGES`.
    device : "cpu" | "cuda"
    workers : sequence of str
        The workers' addresses.
    found : sequence of dict
        For each worker, whether `ucx` is installed.
    apart : str
        Why the workers cannot map each other's memory; empty if they can.

    Raises
    ------
    DeviceError
        UCX was asked for, and a worker does not have it; or peer, and the workers are apart.

    Warns
    -----
    UserWarning
        UCX was asked for on a cluster with TLS.
    """
    if exchange in IN_CLEAR and encrypted(workers):
        warn(
            f'exchange "{exchange}" sends the edges of the graph unencrypted between workers of a cluster that uses '
            'TLS, and UCX listens on every interface without authentication; exchange="tcp" is encrypted',
        )
    if why := why_unusable(exchange, workers, inspections, apart):
        raise DeviceError(f'exchange "{exchange}" was asked for and {why}')
    return best_exchange(device, workers, inspections, apart)[0] if exchange == "auto" else exchange


def best_exchange(
    device: str, workers: Sequence[str], inspections: Sequence[dict[str, Any]], apart: str = ""
) -> tuple[str, str]:
    """Return the exchange of "auto", and the reason.

    Parameters as in `choose_exchange`. It is loopback for one worker; peer if the workers can map each other's memory;
    tcp on a cluster with TLS, because UCX sends unencrypted; ucx on GPUs if every worker has UCXX; else tcp.
    """
    # Ranks that share memory need no network.
    if len(workers) == 1:
        return "loopback", "a single worker exchanges nothing"
    if not apart:
        return "peer", "the workers map each other's memory"
    apart = f"the workers cannot map each other's memory ({apart})"

    # Else the network: UCX for GPUs, unless the cluster encrypts or a worker lacks UCXX.
    if device != "cuda":
        return "tcp", f"{apart}, and they run on the CPU"
    if encrypted(workers):
        return "tcp", f"{apart}, and the cluster uses TLS, which UCX does not"
    without = [address for address, worker in zip(workers, inspections, strict=True) if not worker["ucx"]]
    if without:
        return "tcp", f"{apart}, and these have no UCXX: {', '.join(without)}"
    return "ucx", f"{apart}, and every worker has UCXX"


def why_unusable(exchange: str, workers: Sequence[str], inspections: Sequence[dict[str, Any]], apart: str = "") -> str:
    """Return why the workers cannot use `exchange`, or "".

    Parameters as in `choose_exchange`.
    """
    if exchange == "peer" and apart:
        return f"the workers cannot map each other's memory: {apart}; it is for workers of one host and one user"
    without = [address for address, worker in zip(workers, inspections, strict=True) if not worker["ucx"]]
    if exchange == "ucx" and without:
        return f'these workers have no UCXX (pip install "dask-mgraph[cuda13]"): {", ".join(without)}'
    return ""


def encrypted(workers: Sequence[str]) -> bool:
    """Return True if the workers' addresses are of a cluster with TLS."""
    return any(address.startswith("tls://") for address in workers)
