"""Which workers hold a graph, on which device, and how they speak to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed import Client

from mgraph.errors import DeviceError, InvalidOption, MgraphError

__all__ = [
    "DEVICES",
    "EXCHANGES",
    "check_client",
    "check_names",
    "choose_device",
    "choose_exchange",
    "choose_workers",
    "fixed_order",
]

ANSWER_SECONDS = 8  #: how long the scheduler may take to answer
DEVICES = ("auto", "cpu", "cuda")
EXCHANGES = ("auto", "loopback", "tcp", "ucx", "nccl")


def check_client(client: Any) -> None:
    """`TypeError` unless `client` is a synchronous Dask client, `InvalidOption` where it is closed.

    `MgraphError` where its scheduler does not answer: what a graph asks of it later has no time limit in Dask.
    """
    if not isinstance(client, Client):
        raise TypeError(f"DynamicGraph takes a dask.distributed.Client, got {type(client).__name__}")
    if client.asynchronous:
        raise TypeError("DynamicGraph's calls wait: give it a synchronous client, Client(..., asynchronous=False)")
    if client.status != "running":
        raise InvalidOption(f"the Dask client is {client.status}; a graph needs a running one")
    try:
        client.sync(client.scheduler.identity, callback_timeout=ANSWER_SECONDS)
    except TimeoutError:
        raise MgraphError(
            f"the scheduler at {client.scheduler.address} did not answer within {ANSWER_SECONDS} s; is it stopped?"
        ) from None


def choose_workers(client: Client, workers: Sequence[str] | None) -> list[str]:
    """The addresses of the workers that are to hold a graph, in rank order; all of the cluster for None.

    Raises
    ------
    InvalidOption
        There are none, one is named twice, or one is not in the cluster.
    """
    there = sorted(client.scheduler_info(n_workers=-1)["workers"])
    if workers is None:
        if not there:
            raise InvalidOption("the cluster has 0 workers; a graph needs at least 1")
        return there
    if isinstance(workers, str):
        raise InvalidOption(f"workers is the text {workers!r}; it takes a list of addresses")
    chosen = list(workers)
    if not chosen:
        raise InvalidOption("workers is empty; a graph needs at least 1")
    for address in chosen:
        if chosen.count(address) > 1:
            raise InvalidOption(f"worker {address} is named {chosen.count(address)} times; each holds one part")
        if address not in there:
            raise InvalidOption(f"worker {address!r} is not in the cluster, which has {', '.join(there) or 'none'}")
    return chosen


def check_names(device: str, exchange: str, size: int) -> None:
    """`InvalidOption` for a device or an exchange that there is not."""
    if device not in DEVICES:
        raise InvalidOption(f"device {device!r} is none of {', '.join(map(repr, DEVICES))}")
    if exchange not in EXCHANGES:
        raise InvalidOption(f"exchange {exchange!r} is none of {', '.join(map(repr, EXCHANGES))}")
    if exchange == "loopback" and size > 1:
        raise InvalidOption(f"exchange 'loopback' is for 1 worker, and there are {size}")


def fixed_order(order: Any) -> Any:
    """The permutation that a graph begins with: None for "degree", which is known after the first batch."""
    if isinstance(order, str):
        if order != "degree":
            raise InvalidOption(f'order {order!r} is neither "degree" nor a permutation of the vertices')
        return None
    return order


def choose_device(device: str, workers: Sequence[str], found: Sequence[dict[str, Any]]) -> str:
    """The device by name, "cpu" or "cuda"; "auto" takes GPUs where every worker has one.

    Raises
    ------
    DeviceError
        GPUs were asked for, and a worker has none.
    """
    without = [address for address, worker in zip(workers, found, strict=True) if not worker["gpus"]]
    if device == "cuda" and without:
        raise DeviceError(
            f'device "cuda" was asked for and {len(without)} of {len(workers)} workers have no GPU that CuPy can use: '
            f'{", ".join(without)}; a GPU needs the NVIDIA driver and CuPy (pip install "mgraph[cuda13]")'
        )
    return device if device != "auto" else "cpu" if without else "cuda"


def choose_exchange(exchange: str, device: str, workers: Sequence[str], found: Sequence[dict[str, Any]]) -> str:
    """The exchange by name; "auto" takes loopback for one worker, ucx on GPUs where every worker has it, else tcp.

    Raises
    ------
    InvalidOption
        NCCL was asked for, which moves GPU memory only, and the device is the CPU.
    DeviceError
        UCX or NCCL was asked for, and a worker has none.
    """
    if exchange == "nccl":
        _check_nccl(device, workers, found)
    without = [address for address, worker in zip(workers, found, strict=True) if not worker["ucx"]]
    if exchange == "ucx" and without:
        raise DeviceError(
            f'exchange "ucx" was asked for and these workers have no UCXX (pip install "mgraph[cuda13]"): '
            f"{', '.join(without)}"
        )
    if exchange != "auto":
        return exchange
    if len(workers) == 1:
        return "loopback"
    return "ucx" if device == "cuda" and not without else "tcp"


def _check_nccl(device: str, workers: Sequence[str], found: Sequence[dict[str, Any]]) -> None:
    if device != "cuda":
        raise InvalidOption(f'exchange "nccl" moves GPU memory only, and the device is {device!r}')
    without = [address for address, worker in zip(workers, found, strict=True) if not worker["nccl"]]
    if without:
        raise DeviceError(
            'exchange "nccl" was asked for and on these workers CuPy finds no NCCL (pip install nvidia-nccl-cu13, or '
            f"nvidia-nccl-cu12 with CUDA 12): {', '.join(without)}"
        )
