"""Graphs that algorithms' tests run on after batches and under other numberings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from graphs import IDS, NONE
from spmd import FakeShard, Graph, cut, shards

from mgraph.batch import EdgeBatch

__all__ = ["apply_to", "reordered"]


def _apply(made: list[FakeShard], src: np.ndarray, dst: np.ndarray, op: int) -> None:
    """A batch of arcs, by their rows' owners, to whatever holds them."""
    for shard in made:
        sides = [(shard.out_edges, src, dst)]
        if shard.in_edges is not None and shard.in_edges is not shard.out_edges:
            sides.append((shard.in_edges, dst, src))
        for rows, row, id in sides:
            mine = (row >= shard.lo) & (row < shard.hi)
            rows.apply(EdgeBatch(row[mine] - shard.lo, id[mine], op=op))


def apply_to(
    structure: str, device: str, size: int, n: int, each: int, directed: bool, reverse: bool = False
) -> Iterator[tuple[Graph, list[FakeShard]]]:
    """A graph after each of some batches of inserts and deletes, and its shards; in the end without edges."""
    rng, edges = np.random.default_rng(size), set()
    made = shards(Graph(n, NONE, NONE, directed), cut(n, size), structure, reverse, device)
    for turn in range(4):
        new = rng.integers(0, n, (2, each), dtype=IDS)
        if not directed:
            new.sort(axis=0)
        _both_ways(made, new[0], new[1], directed, 1)
        edges |= set(zip(*new.tolist(), strict=True))
        gone = np.array(sorted(edges), IDS).reshape(-1, 2)
        gone = gone if turn == 3 else gone[rng.random(len(gone)) < 0.4]
        _both_ways(made, gone[:, 0].copy(), gone[:, 1].copy(), directed, -1)
        edges -= set(map(tuple, gone.tolist()))
        left = np.array(sorted(edges), IDS).reshape(-1, 2)
        yield Graph(n, left[:, 0].copy(), left[:, 1].copy(), directed), made


def _both_ways(made: list[FakeShard], src: np.ndarray, dst: np.ndarray, directed: bool, op: int) -> None:
    pairs = (src, dst) if directed else (np.concatenate([src, dst]), np.concatenate([dst, src]))
    _apply(made, *pairs, op)


def reordered(
    graph: Graph, size: int, seed: int, device: str = "cpu", reverse: bool = False
) -> tuple[list[FakeShard], np.ndarray]:
    """The shards of a graph in a random internal order, and that order: the internal id of each user's id."""
    order = np.random.default_rng(seed).permutation(graph.n).astype(IDS)
    inside = Graph(graph.n, order[graph.src], order[graph.dst], graph.directed, weight=graph.weight)
    made = shards(inside, cut(graph.n, size), "gpma+", reverse, device)
    for shard in made:
        shard.order = shard.device.asarray(order)
    return made, order
