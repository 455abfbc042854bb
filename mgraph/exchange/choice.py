"""The choice of a graph's exchange: the one asked for, or the fastest one that is safe and that all workers have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgraph.errors import DeviceError, InvalidOption
from mgraph.facade import warn

__all__ = ["EXCHANGES", "IN_CLEAR", "best_exchange", "check_exchange", "choose_exchange", "encrypted", "why_unusable"]

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
    """The name of the exchange to use: `exchange` itself, or that of `best_exchange` for "auto".

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
    if exchange in IN_CLEAR and encrypted(workers):
        _warn_in_clear(exchange)
    if why := why_unusable(exchange, device, workers, found, apart):
        error = InvalidOption if exchange == "nccl" and device != "cuda" else DeviceError
        raise error(f'exchange "{exchange}" was asked for and {why}')
    return best_exchange(device, workers, found, apart)[0] if exchange == "auto" else exchange


def best_exchange(
    device: str, workers: Sequence[str], found: Sequence[dict[str, Any]], apart: str = ""
) -> tuple[str, str]:
    """The exchange that "auto" chooses, and why; the parameters are those of `choose_exchange`.

    It is loopback for one worker; peer if the workers can map each other's memory; tcp on a cluster with TLS, because
    UCX and NCCL send unencrypted; ucx on GPUs if every worker has UCXX; else tcp.
    """
    if len(workers) == 1:
        return "loopback", "a single worker exchanges nothing"
    if not apart:
        return "peer", "the workers map each other's memory"
    apart = f"the workers cannot map each other's memory ({apart})"
    if device != "cuda":
        return "tcp", f"{apart}, and they run on the CPU"
    if encrypted(workers):
        return "tcp", f"{apart}, and the cluster uses TLS, which UCX does not"
    without = [address for address, worker in zip(workers, found, strict=True) if not worker["ucx"]]
    if without:
        return "tcp", f"{apart}, and these have no UCXX: {', '.join(without)}"
    return "ucx", f"{apart}, and every worker has UCXX"


def why_unusable(
    exchange: str, device: str, workers: Sequence[str], found: Sequence[dict[str, Any]], apart: str = ""
) -> str:
    """Why the workers cannot use `exchange`, or empty; the parameters are those of `choose_exchange`."""
    if exchange == "peer" and apart:
        return f"the workers cannot map each other's memory: {apart}; it is for workers of one host and one user"
    if exchange not in IN_CLEAR:
        return ""
    if exchange == "nccl" and device != "cuda":
        return f"NCCL transfers GPU memory only, and the device is {device!r}"
    without = ", ".join(address for address, worker in zip(workers, found, strict=True) if not worker[exchange])
    if without and exchange == "ucx":
        return f'these workers have no UCXX (pip install "dask-mgraph[cuda13]"): {without}'
    if without:
        return (
            "on these workers CuPy finds no NCCL (pip install nvidia-nccl-cu13, or nvidia-nccl-cu12 with CUDA 12): "
            f"{without}"
        )
    return ""


def encrypted(workers: Sequence[str]) -> bool:
    """Whether the workers' addresses are those of a cluster with TLS."""
    return any(address.startswith("tls://") for address in workers)


def _warn_in_clear(exchange: str) -> None:
    listens = ", and UCX listens on every interface without authentication" if exchange == "ucx" else ""
    warn(
        f'exchange "{exchange}" sends the edges of the graph unencrypted between workers of a cluster that uses '
        f'TLS{listens}; exchange="tcp" is encrypted',
    )
