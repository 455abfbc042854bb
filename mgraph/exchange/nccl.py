"""The exchange over NCCL, through CuPy: one kernel sends and receives the device arrays of a step, on the same stream.

NCCL transfers device memory only, and both sides must know the lengths. So a step has two phases:

    counts   a host collective tells every rank how much each rank sends to each other: a row of int64 for each rank,
             code of the call | bytes to rank 0 | bytes to rank 1 | ...
    data     one group of sends and receives; left out if all counts are 0

The host collectives are those of a companion, which is another exchange of the same ranks, or NCCL's own through small
device buffers: see `NcclExchange`. The stream orders the data: the kernels that compute the parts run before NCCL's,
and those that read the received parts run after it. The host still waits for an event, by polling. If a rank is lost, a
kernel of NCCL's spins for ever; this wait can be interrupted, and later waits of the shard cannot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import Aborted, DeviceError, WorkerLost
from mgraph.exchange.contract import Array, Exchange, ExchangeError
from mgraph.exchange.nccl_api import ID_BYTES, Nccl
from mgraph.exchange.nccl_host import HostOverNccl
from mgraph.exchange.nccl_start import Start
from mgraph.exchange.rules import another_call, call_code, check_addresses, check_op, check_parts
from mgraph.exchange.waiting import PATIENCE, POLL, wait_until

__all__ = ["NcclExchange"]

FAREWELL = 0.1  #: seconds for which `close` waits until the other ranks have finished the last step
CLOSING = 5.0  #: seconds for which `close` waits until NCCL has ended


class NcclExchange(Exchange):
    """Collectives over one NCCL communicator.

    Parameters
    ----------
    rank, size, aborted
        See `Exchange`.
    device : Device
        The GPU of this rank. NCCL needs a different GPU for each rank.
    small : Exchange, optional
        The companion: an unconnected exchange of the same ranks for host arrays. This exchange takes it over, and
        connects and closes it. Without one, counts and `allreduce` are sent by NCCL through device memory, which needs
        no second transport and costs one more read-back a step.
    patience : float
        Seconds after which `connect` raises `WorkerLost`.
    api : Nccl, optional
        The binding of NCCL to use.

    Raises
    ------
    DeviceError
        There is no GPU, or CuPy or NCCL is not installed.

    Notes
    -----
    NCCL's initialisation waits for every rank, and CuPy offers no way to interrupt it. So it runs in a separate thread,
    after the companion has connected all ranks. If a rank is lost in between, the thread is abandoned, and destroys its
    communicator if it ever gets one. Without a companion, only the client ensures that all ranks are there: it sends
    addresses after all ranks have constructed their exchanges.
    """

    name: ClassVar[str] = "nccl"

    def __init__(
        self,
        rank: int,
        size: int,
        aborted: Callable[[], bool],
        device: Device,
        *,
        small: Exchange | None = None,
        patience: float = PATIENCE,
        api: Nccl | None = None,
    ) -> None:
        super().__init__(rank, size, aborted)
        self._device, self._patience = device, patience
        self._step, self._over = 0, ""  # _over: why no further call is possible
        self._lock = threading.Lock()  # held by the running call; close() waits for it
        self._comm: Any = None
        self._buffers: list[Any] = []  # the arrays that NCCL reads and writes; kept after a failed step
        self._small = small or HostOverNccl(self)
        self._small.aborted = self._is_over  # so that a wait in the companion ends with this exchange
        try:
            device.use()
            self._api = api or Nccl(device)
            self._unique_id = self._api.new_id() if rank == 0 else bytes(ID_BYTES)
        except BaseException:
            self._small.close()
            raise

    @property
    def address(self) -> bytes:
        """The unique id (filled by rank 0 only), the companion's name and the companion's address."""
        if self._over:
            raise Aborted(f"{self._here()} {self._over}")
        return self._unique_id + self._small.name.encode().ljust(8) + self._small.address

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Connect the companion, then make the communicator and all connections that it will use.

        Raises
        ------
        WorkerLost
            A rank did not answer in time.
        DeviceError
            NCCL reported an error, as for two ranks on one GPU.
        ExchangeError
            Another rank has another kind of companion.
        """
        check_addresses(addresses, self.size)
        for rank, address in enumerate(addresses):
            name = address[ID_BYTES : ID_BYTES + 8].decode().strip()
            if name != self._small.name:
                raise ExchangeError(
                    f"rank {rank} sends its counts over {name} and rank {self.rank} over {self._small.name}"
                )
        began = time.monotonic()
        with self._lock:
            self._check()
            try:
                self._small.connect([address[ID_BYTES + 8 :] for address in addresses])
                self._comm = self._start(addresses[0][:ID_BYTES], began + self._patience)
            except BaseException as error:
                self._over = self._over or f"failed before: {error}"
                raise

    def alltoallv(self, parts: Sequence[Array]) -> list[Array]:
        """See `Exchange.alltoallv`; ordered by the calling thread's stream, and complete on return."""
        check_parts(parts, self.size)
        return self._swap("alltoallv", parts)

    def allgather(self, part: Array) -> list[Array]:
        """See `Exchange.allgather`; ordered by the calling thread's stream, and complete on return."""
        return self._swap("allgather", [part] * self.size)

    def allreduce(self, values: np.ndarray, op: str = "sum") -> np.ndarray:
        """See `Exchange.allreduce`; uses the companion, or NCCL and device memory without one."""
        check_op(op)
        with self._lock:
            return self._guarded(lambda: self._small.allreduce(values, op))

    def close(self) -> None:
        """Destroy the communicator. It may be called twice, and ends a call of another thread at that call's next poll.

        After a regular end, it waits up to `FAREWELL` seconds for the other ranks to finish the last step, since they
        may be reading this rank's memory. In all cases it waits up to `CLOSING` seconds for NCCL to end.
        """
        regular = not self._over and not self.aborted()
        self._over = self._over or "was closed"
        if self._lock.acquire(timeout=CLOSING):  # else a call is stuck and does not poll: leave it what it uses
            try:
                if self._comm is not None:
                    if regular:
                        self._part()
                    self._destroy()
            finally:
                self._lock.release()
        self._small.close()

    # ---- one step --------------------------------------------------------------------------------------------------

    def _swap(self, call: str, parts: Sequence[Array]) -> list[Array]:
        with self._lock:
            return self._guarded(lambda: self._step_once(call, parts))

    def _guarded(self, step: Callable[[], Any]) -> Any:
        """The result of `step`; after the first failure no further step is possible."""
        self._check()
        if self._comm is None:
            raise Aborted(f"{self._here()} was not connected")
        try:
            result = step()
        except self._api.error as error:
            self._over = self._over or f"failed before: {error}"
            raise Aborted(f"{self._here()} lost another rank: {error}") from None
        except BaseException as error:
            self._over = self._over or f"failed before: {error}"
            raise
        self._step += 1
        return result

    def _step_once(self, call: str, parts: Sequence[Array]) -> list[Array]:
        dtype = parts[self.rank].dtype
        coming = self._counts(call_code(call, dtype), parts)
        received = list(parts)
        sends = [(r, parts[r]) for r in self._others() if parts[r].size]
        receives = []
        for r in self._others():
            # The pool may return memory that earlier work on the stream still uses; NCCL's kernel runs after that work
            # on the same stream.
            received[r] = self._device.empty(coming[r] // dtype.itemsize, dtype)
            if coming[r]:
                receives.append((r, received[r]))
        if sends or receives:
            self._buffers[:] = [sends, receives]
            self._api.swap(self._comm, sends, receives)
            self._api.mark()
            wait_until(self._api.done, self._look)
            self._buffers.clear()
        return received

    def _counts(self, code: int, parts: Sequence[Array]) -> list[int]:
        """The bytes that each rank sends to this one; `ExchangeError` if a rank is in another call."""
        row = np.array([code, *(part.nbytes for part in parts)], np.int64)
        rows = self._small.allgather(row)
        for rank, theirs in enumerate(rows):
            if theirs[0] != code:
                raise another_call(self._here(), code, rank, int(theirs[0]))
        return [int(theirs[1 + self.rank]) for theirs in rows]

    def _others(self) -> list[int]:
        return [(self.rank + i) % self.size for i in range(1, self.size)]

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        return bool(self._over) or self.aborted()

    def _check(self) -> None:
        if self._is_over():
            raise Aborted(f"{self._here()} {self._over or 'was aborted'}")

    def _look(self) -> None:
        """Raise if waiting is pointless: the exchange was aborted or closed, or NCCL reports an error."""
        self._check()
        self._comm.check_async_error()

    def _here(self) -> str:
        return f"the exchange of rank {self.rank}, step {self._step},"

    # ---- beginning and end -----------------------------------------------------------------------------------------

    def _start(self, unique_id: bytes, deadline: float) -> Any:
        start = Start(self._api, self._device, self.rank, self.size, unique_id)
        start.start()
        try:
            while not start.ended.wait(POLL / 5):
                self._check()
                if time.monotonic() > deadline:
                    raise WorkerLost(
                        f"rank {self.rank} did not finish NCCL's initialisation within {self._patience:g} s: "
                        "another rank did not answer"
                    )
            return start.result()
        except self._api.error as error:
            raise DeviceError(
                f"rank {self.rank} on {self._device}: NCCL failed: {error}; every rank needs a GPU of its own"
            ) from error
        except BaseException:
            start.give_up()
            raise

    def _part(self) -> None:
        """Wait until all ranks have finished the last step, for `FAREWELL` seconds at most."""
        end = time.monotonic() + FAREWELL
        self._small.aborted = lambda: time.monotonic() > end
        with suppress(Exception):
            self._small.barrier()

    def _destroy(self) -> None:
        comm, self._comm = self._comm, None

        def destroy() -> None:
            self._device.use()
            with suppress(Exception):
                self._api.abort(comm)

        # the end of NCCL does not wait for other ranks, but cannot be interrupted
        ending = threading.Thread(target=destroy, name=f"nccl-end-{self.rank}", daemon=True)
        ending.start()
        ending.join(CLOSING)
        if not ending.is_alive():
            self._buffers.clear()
