"""Worker-to-worker communication: the interface `Exchange`, and its implementations, one module each.

`loopback` has no dependencies, `peer` needs ranks of one host, `tcp` Dask and `ucx` UCXX. This package imports only the
interface and the loopback, so it can be imported without Dask.
"""

from mgraph.errors import ExchangeError
from mgraph.exchange.contract import Exchange
from mgraph.exchange.loopback import Loopback

__all__ = ["Exchange", "ExchangeError", "Loopback"]
