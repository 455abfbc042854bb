"""A graph without workers: a coordinator that answers a client's calls from a dict of edges.

Each rank refuses what a real one refuses: ids that it does not own, and reads that were dealt by other ranges or by
another order than those of now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from graph_model import GraphModel

from mgraph.client.calls.caller import GraphStatus
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphClosed, MgraphError
from mgraph.failures import Stale
from mgraph.partition import Partition
from mgraph.protocol import ShardState

__all__ = ["PlainGraph", "cuts", "fresh_rng", "numberings"]

Value = dict[str, Any]


class PlainGraph:
    """Stands in for `mgraph.client.calls.coordinator.Coordinator`.

    Parameters
    ----------
    model : GraphModel
        By users' ids.
    numbering : Numbering
        The ranges and the order that the ranks have.
    programs : mapping of str to callable, optional
        Algorithms: ``program(rank, internal_ids, **args)`` gives a rank's columns and infos.

    Attributes
    ----------
    asked : list of str
        The methods that were called.
    forgotten : list of str
        The results to free.
    unsettled : bool
        Whether a call was interrupted, and no call was answered since.
    """

    epoch = 0

    def __init__(
        self, model: GraphModel, numbering: Numbering, programs: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        self.model, self.numbering, self.programs = model, numbering, programs or {}
        self.addresses = tuple(f"tcp://10.0.0.{rank}:1" for rank in range(numbering.partition.size))
        self.asked: list[str] = []
        self.forgotten: list[str] = []
        self.results: dict[str, list[dict[str, np.ndarray]]] = {}
        self.problem: MgraphError | None = None  #: what `check` raises
        self.unsettled = False
        self.before: dict[str, Callable[[], object]] = {}  #: what happens before a method is answered, once
        self.states = self.said()

    def said(self) -> list[ShardState]:
        """What the ranks say of themselves now."""
        given = {"epoch": self.epoch, "generation": self.numbering.generation}
        ranges = (self.numbering.partition.range(rank) for rank in range(len(self.addresses)))
        return [ShardState(lo=lo, hi=hi, **given) for lo, hi in ranges]

    # ---- what a client calls -----------------------------------------------------------------------------------------

    def check(self) -> None:
        if self.problem is not None:
            raise self.problem

    lock: AbstractContextManager[None] = nullcontext()

    @property
    def settled(self) -> bool:
        return self.problem is None and not self.unsettled

    @property
    def status(self) -> GraphStatus:
        usable = self.problem is None
        return GraphStatus(
            "g", self.addresses, True, 0, self.states, self.epoch, 0, closed=False, usable=usable,
            unsettled=self.unsettled,
        )  # fmt: skip

    def forget(self, result: str) -> None:
        self.forgotten.append(result)

    def call(
        self, method: str, args: Value | None = None, shares: Sequence[Value] | None = None, **_: bool
    ) -> list[Value]:
        self.check()
        self.asked.append(method)
        self.before.pop(method, lambda: None)()
        for result in self.forgotten:
            self.results.pop(result, None)
        given = [{**(args or {}), **share} for share in (shares or [{}] * len(self.addresses))]
        answers = [getattr(self, f"_{method}")(rank, **one) for rank, one in enumerate(given)]
        self.states, self.unsettled = self.said(), False
        return answers

    # ---- what a rank answers -----------------------------------------------------------------------------------------

    def _inspect(self, rank: int) -> Value:
        return {}

    def _order(self, rank: int, wanted: bool) -> Value:
        return {"order": self.numbering.order.copy()} if wanted else {}

    def _has_edges(self, rank: int, src: np.ndarray, dst: np.ndarray, **by: Any) -> Value:
        self._check(rank, src, **by)
        arcs = self.model.arcs()
        pairs = zip(self._users(src), self._users(dst), strict=True)
        return {"found": np.array([pair in arcs for pair in pairs], bool)}

    def _degrees(self, rank: int, ids: np.ndarray, direction: str, **by: Any) -> Value:
        offsets = self._neighbors(rank, ids, direction, **by)["offsets"]
        return {"degrees": np.diff(offsets).astype(np.uint32)}

    def _neighbors(self, rank: int, ids: np.ndarray | None, direction: str = "out", **by: Any) -> Value:
        """Rows in the order of internal ids, as structures hold them; those of `ids` or all."""
        lo, hi = self.numbering.partition.range(rank)
        ids = np.arange(lo, hi) if ids is None else ids
        self._check(rank, ids, **by)
        rows = [self._row(user, direction) for user in self._users(ids)]
        offsets = np.cumsum([0, *map(len, rows)])
        flat = [entry for row in rows for entry in row]
        weight = np.array([w for _, w in flat], np.float32) if self.model.weighted else None
        return {"offsets": offsets, "dst": np.array([v for v, _ in flat], np.uint32), "weight": weight}

    def _row(self, user: int, direction: str) -> list[tuple[int, float]]:
        arcs = self.model.arcs().items()
        near = {v: w for (u, v), w in arcs if u == user} if direction == "out" else {
            u: w for (u, v), w in arcs if v == user
        }  # fmt: skip
        inside = self.numbering.inside(np.array(list(near), np.int64))
        return sorted(zip(inside.tolist(), near.values(), strict=True))

    def _run(self, rank: int, name: str, result: str, generation: int, args: Value, data: dict[str, Value]) -> Value:
        self._same_ids(generation)
        for key, values in data.items():
            args = {**args, key: self._values(rank, generation, **values)}
        lo, hi = self.numbering.partition.range(rank)
        columns, info = self.programs[name](rank, np.arange(lo, hi), **args)
        self.results.setdefault(result, []).append(columns)
        dtypes = {column: str(values.dtype) for column, values in columns.items()}
        return {"info": info, "dtypes": dtypes, "epoch": self.epoch, "lo": lo, "hi": hi}

    def _values(
        self,
        rank: int,
        generation: int,
        starts: list[int],
        result: str = "",
        column: str = "",
        moved: bool = False,
        values: Any = None,
    ) -> np.ndarray:
        self._same_ranges(starts)
        if not result:
            return values
        held = [columns[column] for columns in self.results[result]]
        lo, hi = self.numbering.partition.range(rank)
        return np.concatenate(held)[lo:hi] if moved else held[rank]

    def _fetch(self, rank: int, result: str, column: str | None, ids: np.ndarray | None = None) -> Value:
        values = self._result(rank, result, column)
        return {"values": values.copy() if ids is None else values[ids - self.numbering.partition.starts[rank]]}

    def _top(self, rank: int, result: str, k: int, column: str | None = None) -> Value:
        """The largest of a rank that still has the range of the result."""
        values = self._result(rank, result, column)
        best = np.lexsort((np.arange(len(values)), -values.astype(float)))[:k]
        return {"ids": best + self.numbering.partition.range(rank)[0], "values": values[best]}

    def _result(self, rank: int, result: str, column: str | None) -> np.ndarray:
        if result not in self.results:
            raise GraphClosed(f"result {result} was freed")
        columns = self.results[result][rank]
        return columns[next(iter(columns)) if column is None else column]

    # ---- what a rank refuses -----------------------------------------------------------------------------------------

    def _check(self, rank: int, owned: np.ndarray, starts: list[int], generation: int) -> None:
        self._same_ids(generation)
        self._same_ranges(starts)
        lo, hi = self.numbering.partition.range(rank)
        assert ((lo <= owned) & (owned < hi)).all(), f"rank {rank} owns {lo} .. {hi - 1} and got {owned}"

    def _same_ids(self, generation: int) -> None:
        if generation != self.numbering.generation:
            raise Stale("the order of the vertices has changed")

    def _same_ranges(self, starts: list[int]) -> None:
        if tuple(starts) != self.numbering.partition.starts:
            raise Stale("the ranges of the ranks have changed")

    def _users(self, ids: np.ndarray) -> list[int]:
        return self.numbering.outside(ids).tolist()


# ---- random input ----------------------------------------------------------------------------------------------------


def fresh_rng() -> np.random.Generator:
    """A generator of a new seed, which is printed."""
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    return np.random.default_rng(seed)


def cuts(rng: np.random.Generator, n: int, size: int) -> Partition:
    """Ranges that are cut anywhere, many of them empty."""
    return Partition((0, *sorted(rng.integers(0, n + 1, size - 1).tolist()), n))


def numberings(rng: np.random.Generator, n: int) -> list[Numbering]:
    """Numberings of `n` vertices: one rank and several, even and uneven ranges, the identity and a permutation."""
    orders = [None, rng.permutation(n).astype(np.uint32)]
    ranges = [Partition.equal(n, 1), Partition.equal(n, 3), cuts(rng, n, 2), cuts(rng, n, 5)]
    return [Numbering(partition, order, int(rng.integers(3))) for partition in ranges for order in orders]
