"""The exchange over NCCL, through CuPy: device arrays by one kernel a step, on the stream that computes them.

NCCL moves device memory and has no host buffers and no counts. A step is two things:

    counts   every rank learns, by a host collective, how much each sends to each: a row of int64 a rank,
             code of the call | bytes to rank 0 | bytes to rank 1 | ...
    data     one group of sends and receives; none where the counts are all 0

The host collectives are those of a companion, another exchange of the same ranks, or NCCL's own through small device
buffers: see `NcclExchange`. What stands in the stream orders the data: the kernels that compute the parts run before,
those that read what arrived run after. The host waits all the same, for an event, in short turns: a kernel of NCCL's
spins for ever where a rank is lost, and nothing that the shard does next could be interrupted as this wait can.
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
from mgraph.exchange.waiting import POLL, wait_until

__all__ = ["NcclExchange"]

FAREWELL = 0.1  #: seconds that `close` gives the other ranks to finish the last step
CLOSING = 5.0  #: seconds that `close` gives NCCL to end


class NcclExchange(Exchange):
    """Collectives over one NCCL communicator.

    Parameters
    ----------
    rank, size, aborted
        See `Exchange`.
    device : Device
        A GPU of this rank's own: NCCL takes no GPU twice.
    small : Exchange, optional
        The companion: an unconnected exchange of the same ranks for host arrays, which now belongs to this one and is
        connected and closed with it. Without one, counts and `allreduce` go through NCCL and device memory: no second
        transport, and one read-back a step more.
    connect_timeout : float
        Seconds until `connect` gives up with `WorkerLost`.
    api : Nccl, optional
        What speaks NCCL.

    Raises
    ------
    DeviceError
        There is no GPU, no CuPy or no NCCL here.

    Notes
    -----
    CuPy offers no way to end NCCL's initialisation, which waits for every rank. It runs in a thread of its own, after
    the companion has reached every rank; a rank that is lost in between leaves that thread behind, and whatever it gets
    in the end is destroyed there. Without a companion this rests on the coordinator alone, which hands out addresses
    once all ranks have constructed theirs.
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
        connect_timeout: float = 30.0,
        api: Nccl | None = None,
    ) -> None:
        super().__init__(rank, size, aborted)
        self._device, self._timeout = device, connect_timeout
        self._step, self._over = 0, ""  # _over: why no further call is possible
        self._lock = threading.Lock()  # held by the running call; close() waits for it
        self._comm: Any = None
        self._buffers: list[Any] = []  # what NCCL is at work on; outlives a failed step
        self._small = small or HostOverNccl(self)
        self._small.aborted = self._is_over  # whoever waits in it is released with this exchange
        try:
            device.use()
            self._api = api or Nccl(device)
            self._unique_id = self._api.new_id() if rank == 0 else bytes(ID_BYTES)
        except BaseException:
            self._small.close()
            raise

    @property
    def address(self) -> bytes:
        """The unique id, of rank 0 alone, the companion's name and its address."""
        if self._over:
            raise Aborted(f"{self._here()} {self._over}")
        return self._unique_id + self._small.name.encode().ljust(8) + self._small.address

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Connect the companion, then make the communicator and every connection that it will use.

        Raises
        ------
        WorkerLost
            A rank did not answer in time.
        DeviceError
            NCCL refused, such as two ranks on one GPU.
        ExchangeError
            Another rank has another companion.
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
                self._comm = self._start(addresses[0][:ID_BYTES], began + self._timeout)
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
        """See `Exchange.allreduce`; by the companion, or through device memory where there is none."""
        check_op(op)
        with self._lock:
            return self._guarded(lambda: self._small.allreduce(values, op))

    def close(self) -> None:
        """Destroy the communicator; also twice. Ends a call that another thread waits in, at its next poll.

        After a regular end the other ranks get `FAREWELL` seconds to finish the last step, since they may be reading
        from this rank's memory; after an abort nothing is waited for but NCCL's own end, for `CLOSING` seconds at most.
        """
        regular = not self._over and not self.aborted()
        self._over = self._over or "was closed"
        if self._lock.acquire(timeout=CLOSING):  # else a call is stuck outside of our polling: leave it what it needs
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
        """Do one step; on the first failure the exchange is over."""
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
            # Memory that the pool hands out may still be in use by what the stream was given before; NCCL's kernel
            # stands behind that in the same stream.
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
        """Bytes that each rank sends here, after making sure that all are in the same call."""
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
        """Whether waiting still makes sense: raises where it does not."""
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
                        f"rank {self.rank} did not finish NCCL's initialisation within {self._timeout} s: "
                        "another rank did not answer"
                    )
            return start.result()
        except self._api.error as error:
            raise DeviceError(
                f"rank {self.rank} on {self._device}: NCCL refused: {error}; every rank needs a GPU of its own"
            ) from error
        except BaseException:
            start.give_up()
            raise

    def _part(self) -> None:
        """Meet the other ranks once more, where they come within `FAREWELL`."""
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

        # NCCL's end waits for no rank, but is not ours to interrupt
        ending = threading.Thread(target=destroy, name=f"nccl-end-{self.rank}", daemon=True)
        ending.start()
        ending.join(CLOSING)
        if not ending.is_alive():
            self._buffers.clear()
