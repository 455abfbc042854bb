"""Graphs with a store on local disks, as shards in threads of this process, each with a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ranks import Ranks
from stores import HOW, end, raised

from mgraph.client.calls.caller import GraphStatus
from mgraph.client.stores.storing import surveyed
from mgraph.partition import Partition

KIND = ("structure", "directed", "weighted", "reverse")


class Disks:
    """Calls ranks as a client does; rank r sees the folder ``paths[r]``, whatever path it is told."""

    def __init__(self, ranks: Ranks, paths: Sequence[Any]) -> None:
        self.ranks, self.paths = ranks, [str(path) for path in paths]
        addresses = tuple(f"worker {rank}" for rank in range(ranks.size))
        self.status = GraphStatus("g", addresses, True, 0, [], 0, 0, closed=False, usable=True, unsettled=False)

    def call(self, method: str, args: dict[str, Any]) -> list[Any]:
        shares = [{"path": path} if "path" in args else {} for path in self.paths]
        return raised(self.ranks.call(method, shares, **{name: args[name] for name in args if name != "path"}))


def stored(ranks: Ranks, paths: Sequence[Any], sync: str = "always", snapshots: str | None = None, **how: Any) -> None:
    """Give a graph without changes a store of which each rank has its part in its folder."""
    spec = ranks.shards[0].spec
    kind = {**{name: getattr(spec, name) for name in KIND}, "n_vertices": ranks.shards[0].n_vertices}
    if snapshots is not None:
        kind["snapshots"] = snapshots
    disks = Disks(ranks, paths)
    sees = [answer["sees"] for answer in disks.call("new_parts", {"path": ""})]
    disks.call("create_parts", {"kind": kind, "store": "a" * 32, "sees": sees, "sync": sync, **HOW, **how})


def reopened(
    paths: Sequence[Any],
    starts: Sequence[int] | None = None,
    *,
    epoch: int | None = None,
    repair: bool = False,
    kind: dict[str, Any] | None = None,
    n: int = 0,
    how: dict[str, Any] | None = None,
    **spec: Any,
) -> Ranks:
    """The graph, on a rank for each of `paths`; ended where it cannot be opened."""
    ranks = Ranks(starts or Partition.equal(n, len(paths)).starts, **(kind or {}), **spec)
    own = epoch is None
    try:
        found = surveyed(Disks(ranks, paths), "", epoch, repair, own)
        assert found["n_vertices"] == ranks.shards[0].n_vertices
        log = {"sync": "always", "retain": 2, **HOW, **(how or {})} if own else None
        raised(ranks.call("restore", epoch=found["epoch"], repair=repair, how=log, read_only=not own))
    except BaseException:
        end(ranks)
        raise
    return ranks
