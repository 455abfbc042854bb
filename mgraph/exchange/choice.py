"""The choice of a graph's exchange: the one asked for, or the fastest one that is safe and that all workers have."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from mgraph.errors import DeviceError, InvalidOption

__all__ = ["EXCHANGES", "check_exchange", "choose_exchange"]

EXCHANGES = ("auto", "loopback", "peer", "tcp", "ucx", "nccl")
IN_CLEAR = ("ucx", "nccl")  #: these send unencrypted, even on a cluster with TLS


def check_exchange(exchange: str, size: int) -> None:
    """Raise `InvalidOption` if `exchange` is unknown, or cannot connect `size` workers."""
    if exchange not in EXCHANGES:
        raise InvalidOption(f"exchange {exchange!r} is none of {', '.join(map(repr, EXCHANGES))}")
    if exchange == "loopback" and size > 1:
        raise InvalidOption(f"exchange 'loopback' is for 1 worker, and the graph has {size}")


def choose_exchange(
    exchange: str, device: str, workers: Sequence[str], found: Sequence[dict[str, Any]], apart: str = ""
) -> str:
    """The name of the exchange to use: `exchange` itself, or the choice for "auto".

    "auto" chooses loopback for one worker; peer if the workers can map each other's memory; tcp on a cluster with TLS,
    because UCX and NCCL send unencrypted; ucx on GPUs if every worker has UCXX; else tcp.

    Parameters
    ----------
    exchange : str
        One of `EXCHANGES`.
    device : "cpu" | "cuda"
    workers : sequence of str
        The workers' addresses.
    found : sequence of dict
        For each worker, whether `ucx` and `nccl` are installed.
    apart : str
        Why the workers cannot map each other's memory; empty if they can.

    Raises
    ------
    InvalidOption
        NCCL was asked for, which transfers GPU memory only, and the device is the CPU.
    DeviceError
        UCX or NCCL was asked for, and a worker does not have it; or peer, and the workers are apart.

    Warns
    -----
    UserWarning
        UCX or NCCL was asked for on a cluster with TLS.
    """
    if exchange == "nccl" and device != "cuda":
        raise InvalidOption(f'exchange "nccl" transfers GPU memory only, and the device is {device!r}; use another one')
    if exchange in IN_CLEAR:
        _check_installed(exchange, workers, found)
        _warn_in_clear(exchange, workers)
    if exchange == "peer" and apart:
        raise DeviceError(
            f'exchange "peer" was asked for and the workers cannot map each other\'s memory: {apart}; it is for '
            "workers of one host and one user"
        )
    if exchange != "auto":
        return exchange
    if len(workers) == 1:
        return "loopback"
    if not apart:
        return "peer"
    fast = device == "cuda" and all(worker["ucx"] for worker in found) and not _encrypted(workers)
    return "ucx" if fast else "tcp"


def _encrypted(workers: Sequence[str]) -> bool:
    return any(address.startswith("tls://") for address in workers)


def _check_installed(exchange: str, workers: Sequence[str], found: Sequence[dict[str, Any]]) -> None:
    without = [address for address, worker in zip(workers, found, strict=True) if not worker[exchange]]
    if without and exchange == "ucx":
        raise DeviceError(
            f'exchange "ucx" was asked for and these workers have no UCXX (pip install "dask-mgraph[cuda13]"): '
            f"{', '.join(without)}"
        )
    if without:
        raise DeviceError(
            'exchange "nccl" was asked for and on these workers CuPy finds no NCCL (pip install nvidia-nccl-cu13, or '
            f"nvidia-nccl-cu12 with CUDA 12): {', '.join(without)}"
        )


def _warn_in_clear(exchange: str, workers: Sequence[str]) -> None:
    if _encrypted(workers):
        listens = ", and UCX listens on every interface without authentication" if exchange == "ucx" else ""
        warnings.warn(
            f'exchange "{exchange}" sends the edges of the graph unencrypted between workers of a cluster that uses '
            f'TLS{listens}; exchange="tcp" is encrypted',
            UserWarning,
            stacklevel=4,
        )
