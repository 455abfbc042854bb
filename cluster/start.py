"""One call from nothing to a Dask client: a worker per GPU where there are GPUs, processes on the CPU elsewhere.

Guard the script that calls it, because workers are fresh processes that import the script again::

    if __name__ == "__main__":
        with start(workers=2) as client:
            ...
"""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.system import MEMORY_LIMIT

from mgraph.device import gpu_count
from mgraph.errors import DeviceError, InvalidOption

__all__ = ["ClusterClient", "start"]

DEVICES = ("auto", "cpu", "gpu")

# A terminal sends Ctrl-C to every process of the job. The client's process answers it and closes the rest in order;
# workers that died of it first would turn a clean stop into a lost graph.
IGNORE_INTERRUPT = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


class ClusterClient(Client):
    """A client that owns its cluster: `close`, or the end of a ``with`` block, closes the client, then the cluster."""

    _owned: Any = None

    def __init__(self, cluster: Any, **options: Any) -> None:
        super().__init__(cluster, **options)
        self._owned = cluster

    def close(self, *args: Any, **options: Any) -> Any:
        """Close the client and then its cluster; takes what `Client.close` takes. A second call does nothing."""
        cluster, self._owned = self._owned, None
        if cluster is None:
            return super().close(*args, **options)
        with _one_interrupt_deferred():
            try:
                return super().close(*args, **options)
            finally:
                cluster.close()

    def __del__(self) -> None:
        # The garbage collector may run in a thread that holds the lock which closing a cluster takes, such as one that
        # is just starting another cluster. An abandoned cluster closes itself from its event loop.
        self._owned = None
        super().__del__()


@contextmanager
def _one_interrupt_deferred() -> Iterator[None]:
    """A first Ctrl-C in here takes effect at the end, so that closing is not left half done; a second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if seen:
            signal.raise_signal(signal.SIGINT)


def start(
    workers: int | None = None,
    *,
    device: str = "auto",
    threads: int | None = None,
    dashboard: str | None = None,
    memory_limit: int | None = None,
    rmm_pool: int | str | None = None,
    timeout: float = 60.0,
) -> ClusterClient:
    """Start a cluster on this machine and return a client of it.

    Parameters
    ----------
    workers : int, optional
        How many worker processes. Left out: one a GPU, or one a core.
    device : "auto" | "cpu" | "gpu"
        "auto" takes GPUs where CuPy sees one and dask-cuda is installed, else the CPU.
    threads : int, optional
        Dask threads a worker, 1 where left out. mgraph's kernels run in a thread of their own beside them.
    dashboard : str, optional
        Address of Dask's dashboard, such as ":8787"; none where left out.
    memory_limit : int, optional
        Bytes of host memory a worker; left out, the workers share this machine's memory equally. CPU workers only.
    rmm_pool : int or str, optional
        Size of an RMM pool on each GPU, such as "100GB"; none where left out. GPU workers only.
    timeout : float
        Seconds that workers have to start.

    Returns
    -------
    ClusterClient
        A `dask.distributed.Client`; closing it closes the cluster too.

    Raises
    ------
    InvalidOption
        Zero or negative workers, threads or memory; an unknown device; an option of the other device.
    DeviceError
        ``device="gpu"`` without a GPU or without dask-cuda, or with more workers than GPUs.

    Examples
    --------
    >>> with start(workers=2, device="cpu") as client:  # doctest: +SKIP
    ...     len(client.scheduler_info()["workers"])
    2
    """
    _check(device, workers=workers, threads=threads, memory_limit=memory_limit, timeout=timeout)
    use_gpus = _use_gpus(device, workers)
    if use_gpus and memory_limit is not None:
        raise InvalidOption(f"memory_limit={memory_limit} is for CPU workers; these run on GPUs")
    if not use_gpus and rmm_pool is not None:
        raise InvalidOption(f"rmm_pool={rmm_pool!r} is for GPU workers; these run on the CPU")
    options: dict[str, Any] = {
        "threads_per_worker": threads or 1,
        "dashboard_address": dashboard,
        "protocol": "tcp",  # GPU data takes UCX endpoints of mgraph's own; Dask itself is faster on tcp
        "death_timeout": timeout,
    }
    with dask.config.set({"distributed.worker.preload": _preloads()}):
        cluster = _gpu_cluster(workers, rmm_pool, options) if use_gpus else _cpu_cluster(workers, memory_limit, options)
    try:
        return ClusterClient(cluster, timeout=timeout)
    except BaseException:
        cluster.close()
        raise


def _preloads() -> list[str]:
    """What the user's configuration preloads, and the line that makes workers leave Ctrl-C to the client."""
    configured = dask.config.get("distributed.worker.preload") or []
    return [*([configured] if isinstance(configured, str) else configured), IGNORE_INTERRUPT]


def _check(device: str, **counts: float | None) -> None:
    if device not in DEVICES:
        raise InvalidOption(f"device {device!r} is none of {', '.join(DEVICES)}")
    for name, value in counts.items():
        whole = name == "timeout" or (isinstance(value, int) and not isinstance(value, bool))
        if value is not None and not (whole and value > 0):
            raise InvalidOption(f"{name} is {value!r}; a number above 0, and whole unless it is a time, is needed")


def _use_gpus(device: str, workers: int | None) -> bool:
    """Whether to start GPU workers; `DeviceError` where they were asked for and cannot be had."""
    if device == "cpu":
        return False
    gpus, has_dask_cuda = gpu_count(), importlib.util.find_spec("dask_cuda") is not None
    if device == "auto" and not (gpus and has_dask_cuda):
        return False
    if not gpus:
        raise DeviceError(
            'device="gpu" was asked for and CuPy sees 0 GPUs here; it takes the NVIDIA driver and CuPy '
            '(pip install "mgraph[cuda13]"); device="cpu" needs neither'
        )
    if not has_dask_cuda:
        raise DeviceError('GPU workers need dask-cuda, which is not installed: pip install "mgraph[cuda13]"')
    if workers is not None and workers > gpus:
        raise DeviceError(f"{workers} workers were asked for and {gpus} GPUs are here; a GPU serves one worker")
    return True


def _cpu_cluster(workers: int | None, memory_limit: int | None, options: dict[str, Any]) -> Any:
    count = workers or len(os.sched_getaffinity(0))
    limit = memory_limit or MEMORY_LIMIT // count
    return LocalCluster(n_workers=count, processes=True, memory_limit=limit, **options)


def _gpu_cluster(workers: int | None, rmm_pool: int | str | None, options: dict[str, Any]) -> Any:
    from dask_cuda import LocalCUDACluster

    # Shards are no Dask data: nothing on the device may be spilled behind their back.
    pool = {} if rmm_pool is None else {"rmm_pool_size": rmm_pool}
    return LocalCUDACluster(n_workers=workers or gpu_count(), device_memory_limit=0, **pool, **options)
