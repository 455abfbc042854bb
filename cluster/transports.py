"""``python -m cluster.transports``: print UCX's transports as a line of JSON.

It runs in a process of its own: UCX reads its settings from the environment, prints warnings, and may abort.
"""

from __future__ import annotations

import json
import re
from typing import Any

from mgraph.exchange.ucxx_api import Ucxx

__all__ = ["look", "transports_of"]


def transports_of(info: str) -> dict[str, list[str]]:
    r"""Return the devices by transport, from UCX's description of a context. O(lines).

    Examples
    --------
    >>> transports_of("# resource 1 : md 1 dev 1 flags -- tcp/eth0\n# resource 2 : md 1 dev 2 flags -- tcp/lo")
    {'tcp': ['eth0', 'lo']}
    """
    devices: dict[str, list[str]] = {}
    for transport, name in re.findall(r"resource\s+\d+.*\s(\w+)/(\S+)\s*$", info, re.MULTILINE):
        devices.setdefault(transport, []).append(name)
    return devices


def look() -> dict[str, Any]:
    """Return {"version", "ucxx", "cuda", "transports"}, or {"why"} if UCXX does not load."""
    try:
        ucxx_version = Ucxx().version
        import ucxx
        from ucxx._lib import libucxx

        context = libucxx.UCXContext({}, feature_flags=(libucxx.Feature.TAG,))
        transports = transports_of(context.info)
        version = ".".join(map(str, ucxx.get_ucx_version()))
        cuda = any(name.startswith("cuda") for name in transports)
        return {"version": version, "ucxx": ucxx_version, "cuda": cuda, "transports": transports}
    except Exception as error:  # not installed, or its libraries do not load: the message says which
        return {"why": str(error)}


if __name__ == "__main__":
    print(json.dumps(look()))
