"""Handlers of a client's calls on a rank, by name. They run in the shard's thread, without Dask."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from mgraph.errors import MgraphError
from mgraph.worker.calls import changes, creation, reads, results, stores
from mgraph.worker.calls.rank import ExchangeMaker, Host, Rank, Value

__all__ = ["HANDLERS", "Calls", "ExchangeMaker", "Host"]

try:
    import nvtx
except ImportError:
    nvtx = None


def _ranged(name: str, handler: Callable[..., Value | None]) -> Callable[..., Value | None]:
    """Return `handler` within an NVTX range, named by the algorithm or the call."""

    @wraps(handler)
    def ranged(rank: Rank, /, **args: Any) -> Value | None:
        with nvtx.annotate(str(args.get("name", name)), domain="mgraph"):
            return handler(rank, **args)

    return ranged


#: handlers of `mgraph.calls.CALLS`, by name: the public functions of the modules; where nvtx is installed, in ranges
HANDLERS: dict[str, Callable[..., Value | None]] = {
    name: _ranged(name, getattr(module, name)) if nvtx is not None else getattr(module, name)
    for module in (creation, changes, stores, reads, results)
    for name in module.__all__
}


class Calls(Rank):
    """Rank that runs calls by name, as a `Servant` of its thread."""

    def find(self, method: str, attempt: int) -> Callable[..., Value | None]:
        """Return the handler of the call `method`, or raise `MgraphError`."""
        function = HANDLERS.get(method)
        if function is None:
            raise MgraphError(f"graph {self.graph}, rank {self.number}: no call {method!r}")
        return partial(function, self, attempt=attempt) if method == "open_exchange" else partial(function, self)
