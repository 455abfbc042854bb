"""Worker-to-worker communication behind one contract: `Loopback`, `TcpExchange`, `UcxExchange` and `NcclExchange`."""

from mgraph.exchange.contract import Exchange, ExchangeError
from mgraph.exchange.hub import HANDLER, Hub
from mgraph.exchange.loopback import Loopback
from mgraph.exchange.nccl import NcclExchange
from mgraph.exchange.nccl_api import nccl_installed
from mgraph.exchange.tcp import TcpExchange
from mgraph.exchange.ucx import UcxExchange
from mgraph.exchange.ucxx_api import ucx_installed

__all__ = [
    "HANDLER",
    "Exchange",
    "ExchangeError",
    "Hub",
    "Loopback",
    "NcclExchange",
    "TcpExchange",
    "UcxExchange",
    "nccl_installed",
    "ucx_installed",
]
