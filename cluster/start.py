"""Start a Dask cluster in one call: one worker per GPU, or CPU processes on a machine without GPUs.

Guard the script that calls it, because workers are fresh processes that import the script again::

    if __name__ == "__main__":
        with start(workers=2) as client:
            ...
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, LocalCluster

from cluster.choice import Choice, Machine, choose
from mgraph.errors import InvalidOption

__all__ = ["ClusterClient", "start"]

# A terminal sends Ctrl-C to every process of the job. The client's process answers it and closes the rest in order;
# workers that died of it first would turn a clean stop into a lost graph.
IGNORE_INTERRUPT = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


class ClusterClient(Client):
    """A client that owns its cluster.

    `close`, or the end of a ``with`` block, closes the client, then the cluster.
    """

    _owned: Any = None

    def __init__(self, cluster: Any, **options: Any) -> None:
        super().__init__(cluster, **options)
        self._owned = cluster

    def close(self, *args: Any, **options: Any) -> Any:
        """Close the client and then its cluster; takes the options of `Client.close`.

        A second call does nothing.
        """
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
    """Defer a first Ctrl-C to the end, so that closing is not left half done.

    A second one acts at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Note the first signal, and restore the handler for the second.
    signals: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if signals:
            signal.raise_signal(signal.SIGINT)


def start(
    workers: int | None = None,
    *,
    device: str = "auto",
    gpus: Sequence[int] | None = None,
    threads: int | None = None,
    protocol: str = "tcp",
    dashboard: str | None = None,
    memory_limit: int | None = None,
    rmm_pool: int | str | None = None,
    timeout: float = 60.0,
) -> ClusterClient:
    """Start a cluster on this machine and return a client of it.

    ``python -m cluster probe`` prints what it would start on this machine, and why.

    Parameters
    ----------
    workers : int, optional
        The number of worker processes. By default, one per GPU or one per core.
    device : "auto" | "cpu" | "gpu"
        "auto" takes GPUs where CuPy sees one and dask-cuda is installed, else the CPU.
    gpus : sequence of int, optional
        Indices among the GPUs that CuPy sees, from 0; by default all.
    threads : int, optional
        Dask threads per worker; the kernels of a CPU worker use as many. By default an equal share of the cores, or 1
        on GPUs. A graph's calls run in a thread of their own beside them.
    protocol : "tcp" | "ucxx"
        The protocol of Dask's own messages. A graph sends its data by its exchange.
    dashboard : str, optional
        Address of Dask's dashboard, such as ":8787"; by default none.
    memory_limit : int, optional
        Bytes of host memory per worker; by default an equal share of this machine's memory. CPU workers only.
    rmm_pool : int or str, optional
        Size of an RMM pool on each GPU, such as "10GB"; by default none. GPU workers only. It serves cuDF and other
        users of RMM; mgraph's arrays come from CuPy's own pool, and a pool leaves them that much less.
    timeout : float
        Seconds that workers have to start.

    Returns
    -------
    ClusterClient
        A `dask.distributed.Client`; closing it closes the cluster too.

    Raises
    ------
    InvalidOption
        Zero or negative workers, threads or memory; an unknown device, protocol or GPU; an option of the other device.
    DeviceError
        GPUs without a GPU or without dask-cuda; more workers than GPUs; "ucxx" without distributed-ucxx.

    Examples
    --------
    >>> with start(workers=2, device="cpu") as client:  # doctest: +SKIP
    ...     len(client.nthreads())
    2
    """
    # Check the time limit; `choose` checks the rest.
    if not (isinstance(timeout, int | float) and math.isfinite(timeout) and timeout > 0):
        raise InvalidOption(f"timeout is {timeout!r}; seconds above 0 are needed")
    choice = choose(
        Machine.here(),
        workers,
        device=device,
        gpus=gpus,
        threads=threads,
        protocol=protocol,
        memory_limit=memory_limit,
        rmm_pool=rmm_pool,
    )

    # Start the cluster. It closes if no client can be made.
    with dask.config.set({"distributed.worker.preload": _preloads()}):
        cluster = _cluster(choice, dashboard_address=dashboard, death_timeout=timeout)
    try:
        return ClusterClient(cluster, timeout=timeout)
    except BaseException:
        cluster.close()
        raise


def _preloads() -> list[str]:
    """Return the user's preloads, and a line for the workers to ignore Ctrl-C: the client handles it."""
    configured = dask.config.get("distributed.worker.preload") or []
    return [*([configured] if isinstance(configured, str) else configured), IGNORE_INTERRUPT]


def _cluster(choice: Choice, **options: Any) -> Any:
    if options["dashboard_address"] is None:  # Dask serves its health page all the same: not on a port that others want
        options["scheduler_kwargs"] = {"dashboard_address": "127.0.0.1:0"}
    options |= {"n_workers": choice.workers, "threads_per_worker": choice.threads, "protocol": choice.protocol}
    if choice.device == "cpu":
        return LocalCluster(processes=True, memory_limit=choice.memory_limit, **options)
    from dask_cuda import LocalCUDACluster

    if choice.rmm_pool is not None:
        options["rmm_pool_size"] = choice.rmm_pool
    # Shards are no Dask data: nothing on the device may be spilled behind their back.
    return LocalCUDACluster(CUDA_VISIBLE_DEVICES=list(choice.gpus), device_memory_limit=0, **options)
