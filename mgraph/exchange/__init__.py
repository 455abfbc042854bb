"""Worker-to-worker communication behind one contract: `Loopback`, `TcpExchange` and `UcxExchange`."""

from mgraph.exchange.contract import Exchange, ExchangeError
from mgraph.exchange.hub import HANDLER, Hub
from mgraph.exchange.loopback import Loopback
from mgraph.exchange.tcp import TcpExchange
from mgraph.exchange.ucx import UcxExchange
from mgraph.exchange.ucxx_api import ucx_installed

__all__ = ["HANDLER", "Exchange", "ExchangeError", "Hub", "Loopback", "TcpExchange", "UcxExchange", "ucx_installed"]
