"""Components that follow a graph, against SciPy, and the forest that each rank keeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from components_oracle import COMPONENTS, check_result, labels
from graphs import IDS, random_graph
from plain_graph import fresh_rng
from spmd import FakeShard, Graph, change_rows, cut, run_program, shards

from mgraph.algorithms.algorithm import EdgeDelta
from mgraph.algorithms.communities.components import maintain
from mgraph.algorithms.communities.components.maintain import Components
from mgraph.algorithms.communities.components.program import UNLINKED
from mgraph.device import Device
from mgraph.structures.plan import DELETED, INSERTED


class Followed:
    """The components of a graph on all ranks, through changes that are checked."""

    def __init__(self, graph: Graph, size: int, reverse: bool = False, **options: Any) -> None:
        self.graph, self.shards = graph, shards(graph, cut(graph.n, size), reverse=reverse, **options)
        self.components: dict[int, Components] = {}
        self.ways = Counter[str]()
        self._check(self._begin)
        self._check(self._make_forest)

    def _begin(self, shard: FakeShard) -> Any:
        made = self.components[shard.rank] = Components(shard)
        assert made.links is None
        return made.columns()

    def _make_forest(self, shard: FakeShard) -> Any:
        """As the first deleted arcs do."""
        none = EdgeDelta(shard.device.empty(0, np.uint64), shard.device.empty(0, np.uint8), 1)
        assert self.components[shard.rank].apply_changes(none, 1 << 40).how == "anew"
        return self.components[shard.rank].columns()

    def change(self, inserted: set[tuple[int, int]], deleted: set[tuple[int, int]]) -> None:
        """Insert and delete edges, bring the components up to date, and check them."""
        # Find out which arcs differ.
        graph, before = self.graph, self._arcs()
        edges = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
        if not graph.directed:
            deleted = deleted | {(v, u) for u, v in deleted}
        ends = np.array(sorted((edges - deleted) | inserted), IDS).reshape(-1, 2)
        self.graph = graph = replace(graph, src=ends[:, 0].copy(), dst=ends[:, 1].copy())
        after = self._arcs()
        keys, kinds = np.array(sorted(before ^ after), np.uint64), []
        kinds = np.array([INSERTED if key in after else DELETED for key in keys.tolist()], np.uint8)

        change_rows(self.shards, keys, kinds)

        # Bring the components up to date.
        def update(shard: FakeShard) -> Any:
            device = shard.device
            delta = EdgeDelta(device.asarray(keys), device.asarray(kinds), int((kinds == DELETED).sum()))
            components = self.components[shard.rank]
            kept = components.links and components.links.arcs
            applied = components.apply_changes(delta, 1 << 40)
            if shard.rank == 0:
                patched = components.links is not None and components.links.arcs is not kept
                updated = "patched" if patched else str(applied.changed)
                self.ways[updated if applied.how == "updated" else applied.how] += 1
            return self._begin(shard) if applied.how == "gave up" else components.columns()

        self._check(update)

    def _arcs(self) -> set[int]:
        src, dst = (ends.astype(np.int64) for ends in self.graph.arcs)
        return set((src << 32 | dst).tolist())

    def _check(self, program: Any) -> None:
        want = labels(self.graph)
        check_result(*run_program(self.shards, program, COMPONENTS), want)
        if self.components[0].links is not None:
            self._check_forest(want)

    def _check_forest(self, want: np.ndarray) -> None:
        """The arcs of all ranks exist and connect the components; those of a rank have no circle."""
        together, arcs = nx.Graph(), self._arcs()
        together.add_nodes_from(range(self.graph.n))
        for components in self.components.values():
            links = Device.to_host(components.links.arcs)
            hooks, own = Device.to_host(components.links.hooks), nx.Graph()
            for v in np.flatnonzero(links != UNLINKED).tolist():
                arc = int(links[v])
                assert arc in arcs
                src, dst = arc >> 32, arc & (2**32 - 1)
                assert (src in (v, dst) and dst < v) or (dst == v and src < v) or (hooks[src] and hooks[dst])
                assert not own.has_edge(src, dst)
                own.add_edge(src, dst)
            assert nx.is_forest(own) if own else True
            together.add_edges_from(own.edges)
        for part in nx.connected_components(together):
            assert len({int(want[v]) for v in part}) == 1
        assert nx.number_connected_components(together) == len(np.unique(want))


def stream(rng: np.random.Generator, followed: Followed, rounds: int, most: int) -> None:
    """Random changes: as many edges go as come."""
    for _ in range(rounds):
        graph = followed.graph
        edges = list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
        k = int(rng.integers(0, most + 1))
        gone = {edges[i] for i in rng.permutation(len(edges))[: int(rng.integers(0, most + 1))]}
        # Half of the new edges lead to vertices of small ids, on which many hang.
        src, dst = rng.integers(0, graph.n, (2, k)) // np.where(rng.random(k) < 0.5, 1, 8)
        followed.change(set(zip(src.tolist(), dst.tolist(), strict=True)), gone)


def grid(side: int) -> Graph:
    """A square grid: long ways, and rows of a few edges."""
    cells = np.arange(side * side, dtype=IDS).reshape(side, side)
    src = np.concatenate([cells[:, :-1].ravel(), cells[:-1].ravel()])
    dst = np.concatenate([cells[:, 1:].ravel(), cells[1:].ravel()])
    return Graph(side * side, src, dst, False, "grid")


@pytest.mark.parametrize(("size", "directed", "reverse"), [(1, False, False), (2, False, False), (3, False, False),
                                                           (1, True, False), (2, True, True)])  # fmt: skip
def test_random_streams(
    monkeypatch: pytest.MonkeyPatch, structure: str, pieces: str, size: int, directed: bool, reverse: bool
) -> None:
    rng, ways = fresh_rng(), Counter[str]()
    monkeypatch.setattr(maintain, "SMALL", 0)
    for n, edges, most, patch in ((12, 12, 3, 0), (150, 120, 2, 0), (150, 450, 12, 0), (150, 450, 40, 64)):
        monkeypatch.setattr(maintain, "PATCH", patch)
        graph = random_graph(int(rng.integers(100)), n, edges, directed)
        followed = Followed(graph, size, reverse, structure=structure)
        stream(rng, followed, 15, most)
        ways += followed.ways
    print(ways)
    assert ways["patched"] and ways["gave up"] and ways["anew"] and ways["False"]
    assert ways["True"] or size > 1 or directed


@pytest.mark.parametrize("name", ["grid", "star"])
def test_shapes_on_which_many_vertices_hang(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(maintain, "PATCH", 0)
    rng, n = fresh_rng(), 144
    spokes = np.arange(1, n, dtype=IDS)
    star = Graph(n, np.append(spokes * 0, spokes[:-1]), np.append(spokes, spokes[1:]), False, "star")
    for most in (1, 4, 20):
        followed = Followed({"grid": grid(12), "star": star}[name], 1)
        stream(rng, followed, 25, most)
        print(followed.ways)


def test_few_vertices_that_are_cut_off_are_a_component_at_once() -> None:
    """They hang on each other, and on the rest by one edge; a larger part is found by the program."""
    src = np.arange(199, dtype=IDS)
    followed = Followed(Graph(200, src, src + 1, False), 1)
    followed.change(set(), {(190, 191)})
    followed.change({(0, 191)}, set())  # by an edge that hangs the smaller root's tree on
    followed.change(set(), {(198, 199)})
    assert followed.ways == {"True": 3}
    followed.change(set(), {(20, 21)})
    assert followed.ways == {"True": 3, "patched": 1}


def test_parts_that_are_cut_from_each_other_in_one_batch() -> None:
    """A part from which another was cut is not linked by what may hang on the other now."""
    edges = [(0, 1), (0, 2), (1, 3), (3, 5), (2, 4), (4, 6), (5, 6), (3, 6)]
    ends = np.array(edges, IDS)
    followed = Followed(Graph(8, ends[:, 0].copy(), ends[:, 1].copy(), False), 1)
    followed.change(set(), {(1, 3), (3, 5)})
    followed.change({(1, 3)}, {(2, 4), (3, 6)})
    followed.change({(5, 7), (0, 5)}, {(0, 1), (5, 6)})


def test_more_cut_vertices_than_are_linked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forest is made of its patches; not of small ones."""
    strides, connect = [], maintain.connect
    monkeypatch.setattr(maintain, "connect", lambda shard, *rest: strides.append(rest[-1]) or connect(shard, *rest))
    monkeypatch.setattr(maintain, "PATCH", 64)
    n = 24000
    ids = np.arange(1, n, dtype=IDS)
    followed = Followed(Graph(n, np.append(ids - 1, ids // 2), np.append(ids, ids), False), 1)
    nodes = [{(int(v) // 2, int(v)) for v in ids[first::87]} for first in range(3)]
    followed.change(set(), nodes[0])
    assert followed.ways == {"patched": 1} and strides == [1, 1, 10]
    followed.change(set(), nodes[1] | nodes[2])
    assert followed.ways == {"patched": 1, "gave up": 1} and followed.components[0].links is None
    followed.change({(n - 1, 1)}, set())
    followed.change(set(), {(7, 14)})
    assert followed.ways["anew"] == 1 and followed.components[0].links is not None
    followed.change(set(), {(14, 28)})
    assert followed.ways["anew"] == 1


def test_no_forest_is_kept_until_arcs_are_deleted() -> None:
    n = 400
    ids = np.arange(0, n, 2, dtype=IDS)
    followed = Followed(Graph(n, ids, ids + 1, False), 1)
    followed.change(set(), {(int(v), int(v) + 1) for v in ids[:40]} | {(100, 101)})
    assert followed.components[0].links is not None  # these were components at once
    followed.components[0].links = None
    followed.change({(0, 399), (3, 5)}, set())
    assert followed.ways["True"] == 2 and followed.components[0].links is None
    followed.change({(5, 7)}, {(3, 5)})
    assert followed.ways["anew"] == 1 and followed.components[0].links is not None


def test_many_vertices_that_are_cut_at_the_same_time() -> None:
    """Half of the leaves of a star have another edge, the others are components then; later all are hung again."""
    n = 20000
    leaves = np.arange(2, n, dtype=IDS)
    src = np.concatenate([[0], leaves * 0, leaves[::2] * 0 + 1]).astype(IDS)
    followed = Followed(Graph(n, src, np.concatenate([[1], leaves, leaves[::2]]).astype(IDS), False), 1)
    rng = fresh_rng()
    for _ in range(3):
        spokes = {(0, int(v)) for v in rng.choice(leaves, 250, replace=False)}
        followed.change(set(), spokes)
        followed.change(spokes, {(1, int(v)) for v in rng.choice(leaves, 250, replace=False)})
    assert followed.ways["True"] >= 3  # an arc between hooks may be one of the forest


def test_names_that_change_between_updates(counted: Counter[str]) -> None:
    """Deleted arcs after inserted ones name the trees, once for each new order, and never by an old one."""
    ends = np.array([(0, 1), (2, 3), (3, 4), (3, 5), (4, 5)], IDS)
    followed = Followed(Graph(6, ends[:, 0].copy(), ends[:, 1].copy(), False), 1)
    shard, components, reversal = followed.shards[0], followed.components[0], np.arange(5, -1, -1, dtype=IDS)

    def update(edge: tuple[int, int], kind: int) -> None:
        keys = np.array(sorted(u << 32 | v for u, v in (edge, edge[::-1])), np.uint64)
        kinds = np.full(2, kind, np.uint8)
        change_rows([shard], keys, kinds)
        components.apply_changes(EdgeDelta(keys, kinds, 2 * (kind == DELETED)), 1 << 40)

    update((1, 2), INSERTED)
    shard.order = reversal
    counted.clear()
    update((4, 5), DELETED)
    assert components.columns()[0]["component"].tolist() == [0] * 6
    assert counted["LeastNames"] == 1

    update((2, 3), DELETED)
    update((0, 5), INSERTED)
    shard.order = None
    update((0, 5), DELETED)
    shard.order = reversal
    assert components.columns()[0]["component"].tolist() == [3, 3, 3, 0, 0, 0]
