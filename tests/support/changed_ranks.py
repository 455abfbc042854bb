"""Ranks beside a model of their graph: what they hold, and changes of every kind that are made to both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from graph_model import GraphModel, random_batch
from ranks import Ranks, csr_of

from mgraph.worker.commit.ballot import Ballot

N = 40
KINDS = [{}, {"directed": False, "weighted": True}, {"reverse": True, "weighted": True}]
STARTS = [(0, N), (0, 13, N), (0, 0, 25, N)]

CONTENT = ("batch", "part", "delete_vertices", "add_vertices")
MOVES = ("rebalance", "reorder")


def check(ranks: Ranks, model: GraphModel, order: np.ndarray | None = None) -> None:
    """Every arc of the model lies with its owner, and no other."""
    order = np.arange(model.n_vertices) if order is None else order
    arcs = {(int(order[u]), int(order[v])): w for (u, v), w in model.arcs().items()}
    for shard in ranks.shards:
        for structure in shard.structures:
            structure.check_invariants()
        assert held(shard, shard.out_edges) == {k: w for k, w in arcs.items() if shard.lo <= k[0] < shard.hi}
        if shard.directed and shard.in_edges is not None:
            back = {(v, u): w for (u, v), w in arcs.items() if shard.lo <= v < shard.hi}
            assert held(shard, shard.in_edges) == back
    assert sum(shard.num_edges for shard in ranks.shards) == len(model.edges)


def held(shard, structure) -> dict[tuple[int, int], float]:
    offsets, dst, *weight = csr_of(structure)
    src = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) + shard.lo
    weights = weight[0] if weight else np.ones(len(dst))
    return {(int(u), int(v)): float(w) for u, v, w in zip(src, dst, weights, strict=True)}


def assert_same(ranks: Ranks, model: GraphModel, epoch: int) -> None:
    """The ranks hold what the model holds, as of this epoch."""
    check(ranks, model, ranks.shards[0].order)
    assert [shard.epoch for shard in ranks.shards] == [epoch] * ranks.size
    assert {shard.n_vertices for shard in ranks.shards} == {model.n_vertices}


class Changed:
    """All ranks of a graph, its model, and changes of every kind made to both."""

    def __init__(self, starts: Iterable[int], rng: np.random.Generator, kind: dict[str, Any]) -> None:
        order = rng.permutation(N).astype(np.uint32) if rng.random() < 0.5 else None
        self.ranks, self.rng = Ranks(list(starts), order=order, **kind), rng
        self.model = GraphModel(N, kind.get("directed", True), kind.get("weighted", False))
        self.epoch, self.turn = 0, 0

    def change(self, kind: str, prepared: tuple | None = None) -> list[Any]:
        """Ask all ranks for a change of this kind; the model follows where they made it."""
        given = prepared or self.draw(kind)
        answers = self.ask(kind, *given)
        if not any(isinstance(answer, BaseException) for answer in answers):
            self.follow(kind, *given)
        return answers

    def draw(self, kind: str) -> tuple:
        """What a change of this kind is about."""
        rng, n = self.rng, self.model.n_vertices
        if kind == "batch":
            return (random_batch(rng, n, int(rng.integers(1, 120)), self.model.weighted),)
        if kind == "part":  # some ranks have none; some parts have columns that others lack
            parts = [
                random_batch(rng, n, 30, self.model.weighted and rng.random() < 0.5, rng.choice([0, 0.5]))
                for _ in range(int(rng.integers(1, self.ranks.size + 1)))
            ]
            return (parts,)
        if kind == "delete_vertices":
            return (rng.integers(0, n, 3).astype(np.uint32),)
        return (n + int(rng.integers(1, 4)),) if kind == "add_vertices" else ()

    def ask(self, kind: str, *given: Any) -> list[Any]:
        call, epoch = self.ranks.call, self.epoch + 1
        if kind == "batch":
            return self.ranks.update(given[0], epoch)
        if kind == "part":
            self.turn += 1
            keys = [f"{self.turn}-{rank}" for rank in range(self.ranks.size)]
            self.ranks.held.update(zip(keys, given[0], strict=False))
            parts = [[key] if key in self.ranks.held else [] for key in keys]
            sources = [{"kind": "keys", "parts": mine, "names": {}} for mine in parts]
            return self.ranks.ingest(sources, epoch)
        if kind == "delete_vertices":
            return call(kind, ids=given[0], epoch=epoch)
        return call(kind, n_vertices=given[0], epoch=epoch) if kind == "add_vertices" else call(kind)

    def follow(self, kind: str, *given: Any) -> None:
        self.epoch += kind in CONTENT
        if kind == "batch":
            self.model.update(given[0])
        elif kind == "part":
            for part in given[0]:
                self.model.update(part)
        elif kind == "delete_vertices":
            self.model.delete_vertices(given[0].tolist())
        elif kind == "add_vertices":
            self.model.n_vertices = given[0]

    def check(self) -> None:
        """The ranks hold what the model holds."""
        check(self.ranks, self.model, self.ranks.shards[0].order)
        assert {shard.n_vertices for shard in self.ranks.shards} == {self.model.n_vertices}

    def held(self) -> str:
        """All that a change may change, on all ranks."""
        numbers = [
            (s.epoch, s.changes, s.generation, s.partition, None if s.order is None else s.order.tolist())
            for s in self.ranks.shards
        ]
        sizes = [(t.n_vertices, t.n_rows, t.num_edges) for s in self.ranks.shards for t in s.structures]
        return f"{numbers} {sizes} {[(e, n, [a.tolist() for c in t for a in c]) for e, n, t in self.ranks.snapshot()]}"

    def ballots(self) -> list[Ballot]:
        return [servant.ballot for servant in self.ranks.servants]
