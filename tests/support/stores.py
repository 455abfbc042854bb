"""Graphs with a store, as shards in threads of this process: made, ended, and opened again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from patience import patience
from ranks import Ranks

from mgraph.log.recovery_scan import scan_store
from mgraph.log.store import Store
from mgraph.partition import Partition

HOW = {"lag_bytes": 1 << 20, "lag_seconds": 1.0}


def store_of(ranks: Ranks, path: Any, sync: str = "always", **how: int) -> None:
    """Give a graph without changes a store."""
    spec = ranks.shards[0].spec
    kind = {name: getattr(spec, name) for name in ("structure", "directed", "weighted", "reverse")}
    kind["n_vertices"] = ranks.shards[0].n_vertices
    raised(ranks.call("create_store", path=str(path), kind=kind, sync=sync, **{**HOW, **how}))


def opened(
    path: Any,
    size: int = 1,
    *,
    starts: Sequence[int] | None = None,
    epoch: int | None = None,
    repair: bool = False,
    logged: bool = True,
    sync: str = "always",
    retain: int = 2,
    **spec: Any,
) -> Ranks:
    """The graph in a store, on `size` ranks; ended where it cannot be opened."""
    found = scan_store(Store(str(path)), epoch, repair)
    kind = {name: found.about[name] for name in ("structure", "directed", "weighted", "reverse")}
    starts = starts or Partition.equal(found.n_vertices, size).starts
    ranks = Ranks(starts, **{**kind, **spec})
    own = logged and epoch is None
    try:
        if own:
            raised(ranks.call("claim", path=str(path)))
        raised(ranks.call("survey", path=str(path), epoch=epoch, repair=repair))
        how = {"sync": sync, "retain": retain, **HOW} if own else None
        raised(ranks.call("restore", epoch=found.epoch, repair=repair, how=how, read_only=epoch is not None))
    except BaseException:
        end(ranks)
        raise
    return ranks


def idle(ranks: Ranks) -> list[Any]:
    """Wait until no rank is busy with a snapshot, or with telling that it has none; returns their answers."""
    until = time.monotonic() + patience(20)
    answers = raised(ranks.call("writing"))
    while any(answer["busy"] for answer in answers):
        answers = raised(ranks.call("writing"))
        assert time.monotonic() < until
        time.sleep(0.01)
    return answers


def written(ranks: Ranks) -> None:
    """Wait for the snapshot that is being written; raises why it was not."""
    problems = [answer["problem"] for answer in idle(ranks) if answer["problem"]]
    assert not problems, problems


def end(ranks: Ranks) -> None:
    """Close all ranks of a graph, as the end of its sessions does."""
    for servant in ranks.servants:
        servant.close()


def raised(answers: list[Any]) -> list[Any]:
    """The answers, or the error that is no consequence of another one."""
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    if errors:
        raise next((error for error in errors if type(error).__name__ != "Aborted"), errors[0])
    return answers
