"""Facade of UCXX's core API, which is below its asyncio API."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from mgraph.errors import DeviceError

__all__ = ["Ucxx", "ucx_installed"]


def ucx_installed() -> bool:
    """Return True if UCXX is installed; does not import it."""
    return find_spec("ucxx") is not None


class Ucxx:
    """UCXX, imported at the first use.

    Raises `DeviceError` if it cannot be loaded.
    """

    def __init__(self) -> None:
        # UCXX sets environment variables for old releases of UCX; newer releases would warn of them on standard output
        os.environ.setdefault("UCX_WARN_UNUSED_ENV_VARS", "n")
        try:
            import ucxx  # loads the libraries of its wheels
            from ucxx._lib import arr, libucxx
        except ImportError as error:
            raise DeviceError(
                f'UCXX cannot be loaded on this worker ("dask-mgraph[cuda13]" includes it): {error}'
            ) from error
        self.version = ucxx.__version__
        self.array, self.tag, self.mask, self._lib = arr.Array, libucxx.UCXXTag, libucxx.UCXXTagMask, libucxx

    def worker(self, config: dict[str, str]) -> Any:
        """Create a UCX worker in its own context, to be polled by one thread at a time."""
        # without the feature WAKEUP: polling needs no events, and transports without events can be used
        context = self._lib.UCXContext(config, feature_flags=(self._lib.Feature.TAG,))
        return self._lib.UCXWorker(context, enable_delayed_submission=False, enable_python_future=False)

    def endpoint(self, worker: Any, address: bytes) -> Any:
        """Create an endpoint from `worker` to the worker at `address`."""
        target = self._lib.UCXAddress.create_from_buffer(address)
        return worker.create_endpoint_from_worker_address(target, endpoint_error_handling=False)
