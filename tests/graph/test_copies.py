"""A copy of a graph is what the graph was at its epoch; both go on, and neither knows of the other."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import tracemalloc
import weakref
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from dask.distributed import Client
from faults import before, hit, note, refuse
from graph_clusters import HERE, assert_clean, on, processes
from graph_model import GraphModel, random_batch
from patience import patience
from plain_graph import fresh_rng
from test_failures import raises_in_time
from test_store import assert_graph

from mgraph import CapacityError, DynamicGraph, EdgeBatch, GraphClosed, InvalidOption, WorkerLost, structures
from mgraph.worker.calls import creation
from mgraph.worker.memory import resident_bytes

N = 60
KINDS: list[dict[str, Any]] = [
    {},
    {"weighted": True, "directed": False},
    {"weighted": True, "reverse": True, "order": "degree"},
    {"directed": False, "order": "degree"},
    {"weighted": True, "reverse": True, "combine": "sum"},
]
NAMES = structures.names()


def results(graph: DynamicGraph) -> list[np.ndarray]:
    """Results whose values do not depend on a structure's order of edges."""
    return [graph.bfs(0).to_numpy(), graph.connected_components().to_numpy(), graph.core_number().to_numpy()]


def go_on(graph: DynamicGraph, model: GraphModel, rng: np.random.Generator, combine: bool) -> None:
    """Change a graph and its model, in one of several ways."""
    what = int(rng.integers(6))
    if what == 0:
        graph.add_vertices(3)
        model.n_vertices += 3
    elif what == 1:
        graph.rebalance()
    elif what == 2:
        graph.reorder()
    elif what == 3:
        ids = rng.integers(0, model.n_vertices, 2)
        graph.delete_vertices(ids)
        model.delete_vertices(ids.tolist())
    elif combine:  # each edge once, with its first weight
        src, dst = rng.integers(0, model.n_vertices, (2, 100))
        graph.delete(src, dst)
        model.update(EdgeBatch(src, dst, None, -np.ones(100, np.int8)))
    else:
        batch = random_batch(rng, model.n_vertices, 150, graph.weighted)
        graph.update(batch)
        model.update(batch)


def play(place: dict[str, Any], kind: dict[str, Any], structure: str, other: str | None, steps: int) -> None:
    """A random stream, with copies that live for some steps, and are changed too."""
    rng = fresh_rng()
    model, combine = GraphModel(N, kind.get("directed", True), kind.get("weighted", False)), "combine" in kind
    with DynamicGraph(n_vertices=N, structure=structure, **kind, **place) as g:
        pairs = np.unique(rng.integers(0, N, (500, 2)), axis=0).T
        first = EdgeBatch(*pairs, rng.integers(1, 9, pairs.shape[1]) if g.weighted else None)
        g.update(first)
        model.update(first)
        copies: list[tuple[DynamicGraph, GraphModel]] = []
        for step in range(steps):
            go_on(g, model, rng, combine)
            if step % 3 == 0:
                expected = results(g)
                h = g.copy(structure=other if step % 2 else None)
                assert (h.epoch, h.num_vertices, h.num_edges) == (g.epoch, g.num_vertices, g.num_edges)
                assert h.structure == (other if step % 2 and other else structure)
                assert (h.workers, h.exchange, h.combine) == (g.workers, g.exchange, g.combine)
                assert h.fingerprint() == g.fingerprint()
                copies.append((h, deepcopy(model)))
                go_on(g, model, rng, combine)
                for values, then in zip(results(h), expected, strict=True):
                    np.testing.assert_array_equal(values, then)
            for h, its in copies:
                assert_graph(h, its)
                go_on(h, its, rng, combine)
            assert_graph(g, model)
            if len(copies) > 2:
                copies.pop(0)[0].close()
        for h, its in copies:
            assert_graph(h, its)
            h.close()
        assert_graph(g, model)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=name, marks=() if name == "gpma+" else pytest.mark.slow)
        for number, name in enumerate(NAMES)
    ],
)
def test_copies_in_this_process_over_a_random_stream(number):
    kind = KINDS[number % len(KINDS)]
    play(on(None, HERE), kind, NAMES[number], NAMES[number - 1], 7)


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_copies_on_workers_over_a_random_stream(client, number):
    play(on(client, 2), KINDS[2 + number], ["gpma+", "hornet"][number], "csr", 4)
    assert_clean(client)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("structure", NAMES)
@pytest.mark.parametrize("size", [HERE, 3])
def test_copies_of_all_kinds_over_long_random_streams(client3, size, structure, kind):
    play(on(client3, size), kind, structure, "csr" if structure != "csr" else "lpma", 9)


# ---- what a copy has, and what it has not ----------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["int64", "string"])
def test_keys_are_the_copys_own(place, keys):
    def named(ids: Any) -> Any:
        return [f"v{i}" for i in ids] if keys == "string" else np.array(ids) * 10**12 - 7

    with DynamicGraph(place, keys=keys) as g:
        g.insert(named([0, 1, 2]), named([1, 2, 3]))
        with g.copy() as h, g.copy() as empty:
            g.insert(named([3, 4]), named([4, 5]))
            g.delete_vertices(named([0]))
            assert list(h) == list(named(range(4)))
            assert h.insert(named([7, 3]), named([8, 7])).inserted == 2
            assert list(h) == list(named([0, 1, 2, 3, 7, 8]))
            assert list(g) == list(named([1, 2, 3, 4, 5]))
            assert h.bfs(named([0])[0])[named([8])[0]] == 5
            assert (h.has_edge(*named([0, 1])), g.has_edge(*named([2, 3]))) == (True, True)
            empty.delete_vertices(named(range(4)))
            with empty.copy() as twin:
                assert (twin.num_vertices, twin.keys) == (0, "undecided" if keys is None else twin.keys)
                twin.insert(named([9]), named([8]))
                assert list(twin) == list(named([9, 8]))
    assert_clean(place)


def test_a_copy_of_a_graph_that_grows_and_is_undecided(place):
    with DynamicGraph(place) as g, g.copy() as h:
        g.insert(["ada"], ["grace"])
        h.insert([0, 5], [1, 6])
        assert (g.keys, h.keys, g.num_vertices, h.num_vertices) == ("string", None, 2, 7)
        h.insert([9], [10])
        assert h.num_vertices == 11


@pytest.mark.parametrize(
    "how",
    [
        {"times": True, "weighted": True},
        {"window": 40, "weighted": True, "combine": "sum", "directed": False},
        {"window": 30, "reverse": True},
        {"window_edges": 50},
    ],
    ids=["times", "combined window", "window", "edges"],
)
def test_times_are_copied_and_no_window_moves(place, how):
    rng = fresh_rng()
    with DynamicGraph(place, N, **how) as g:

        def insert(graph: DynamicGraph, step: int) -> Any:
            src, dst = rng.integers(0, N, (2, 50))
            weight = rng.integers(1, 9, 50).astype(float) if graph.weighted else None
            return graph.insert(src, dst, weight, time=12 * step + rng.integers(-30, 12, 50))

        for step in range(6):
            insert(g, step)
        before = rows_of(g)
        with g.copy() as h, g.copy(structure="hornet") as other:
            for step in range(6, 12):
                insert(g, step)
            for copied in (h, other):
                assert rows_of(copied) == before
                assert (copied.window, copied.window_edges, copied.times) == (None, None, g.times)
                # Edges of all times stay, and their times are found.
                report = copied.insert([0, 1], [1, 2], time=[-1000, 9999])
                assert (report.late, report.expired) == (0, 0)
                now = rows_of(copied)
                assert {edge[:2] for edge in now} == {edge[:2] for edge in before} | set(both(g, [(0, 1), (1, 2)]))
                assert {edge[3] for edge in now if edge[:2] in {(0, 1), (1, 2)}} == {-1000, 9999}
                copied.delete([0], [1])
                assert not copied.has_edge(0, 1)
    assert_clean(place)


def test_an_order_that_is_due_is_due_in_the_copy_too():
    with DynamicGraph(n_vertices=6, order="degree") as g, g.copy() as h:
        h.insert([5, 5, 5], [1, 2, 3])
        for graph, hub in ((h, 0), (g, 5)):  # the hub comes first where edges came
            order = graph._directory.check().order
            assert (5 if order is None else order[5]) == hub
        assert (h.bfs(5).to_numpy().tolist(), g.num_edges) == ([-1, 1, 1, 1, -1, 0], 0)


def test_isolated_vertices_are_dropped_by_the_copys_own_changes():
    with DynamicGraph(keys="string", drop_isolated=True, window=10) as g:
        g.insert(["a", "b"], ["b", "c"], time=[0, 5])
        with g.copy() as h:
            for graph, left in ((g, ["x", "y"]), (h, ["a", "b", "c", "x", "y"])):
                graph.insert(["x"], ["y"], time=[100])
                assert list(graph) == left
            h.delete(["a"], ["b"])
            assert list(h) == ["b", "c", "x", "y"]


def both(graph: DynamicGraph, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return pairs if graph.directed else pairs + [(v, u) for u, v in pairs]


def rows_of(graph: DynamicGraph) -> list[tuple]:
    """Every arc with its weight and its time."""
    rows = graph.to_csr()
    src = np.repeat(np.arange(graph.num_vertices), np.diff(rows.offsets)).tolist()
    weight = [1.0] * len(src) if rows.weight is None else rows.weight.tolist()
    return sorted(zip(src, rows.dst.tolist(), weight, rows.time.tolist(), strict=True))


def test_a_copy_has_no_store_no_name_and_no_results(client, tmp_path):
    with DynamicGraph(client, 5, store=tmp_path / "store", recover="auto") as g:
        g.insert([0, 1], [1, 2])
        ranks, live = g.pagerank(), g.maintain("connected_components")
        with g.copy() as h:
            for shards in client.run(measured).values():  # as the dashboard shows them
                assert {shard["graph"]: shard["copy_of"] for shard in shards} == {g.id: "", h.id: g.id}
            assert (h.store, h.durable_epoch, h.recoveries) == (None, 0, ())
            for call in (h.snapshot, lambda: h.at(1)):
                with pytest.raises(InvalidOption, match="store"):
                    call()
            h.insert([3], [4])
            g.insert([2], [3])
            assert live.result().to_numpy().tolist() == [0, 0, 0, 0, 4]
            assert len(ranks.to_numpy()) == 5
            with h.maintain("connected_components") as own:
                assert own.result().to_numpy().tolist() == [0, 0, 0, 3, 3]
            assert [report.inserted for report in h.ingest(lambda rank, size, step: ([2], [rank]), steps=1)] == [2]
            h.delete([2, 2], [0, 1])
            h.publish("copied")
            with DynamicGraph.attach(client, "copied") as attached:
                assert attached.num_edges == 3
            h.unpublish()
            h.save(tmp_path / "saved")
        with g.at(1) as then, then.copy() as h:
            h.insert([4], [0])  # though the graph of an earlier epoch is read-only
            assert (h.epoch, h.num_edges) == (2, 3)
    with DynamicGraph.load(tmp_path / "saved") as saved:
        assert saved.num_edges == 3
    assert_clean(client)


def measured(dask_worker: Any) -> list[dict[str, Any]]:
    """The metrics of a worker's shards; runs there."""
    return dask_worker.plugins["mgraph"].meter.shards()


def test_a_copy_outlives_the_graph_and_the_graph_its_copies(place):
    g = DynamicGraph(place, 4)
    g.insert([0, 1], [1, 2])
    h = g.copy()
    with h.copy() as third:
        assert third.epoch == 1
    g.close()
    for again in range(2):
        assert h.insert([2], [3]).inserted == 1 - again
    assert h.bfs(0).to_numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(GraphClosed, match="is closed"):
        g.copy()
    with h.copy() as fourth:
        h.close()
        h.close()
        assert fourth.num_edges == 3
    assert_clean(place)


def test_another_structure_is_checked_before_anything_is_made(place):
    with DynamicGraph(place, 4) as g:
        g.insert([0], [1])
        for structure, match in (("tree", "'tree' is none of"), ("gpma+:lea=16", "no option 'lea'"), (7, "no name")):
            with pytest.raises(InvalidOption, match=match):
                g.copy(structure=structure)
        with g.copy(structure="auto") as h:
            assert h.structure == "gpma+"
        with g.copy(structure="gpma+:leaf=8") as h:
            assert (h.structure, h.num_edges) == ("gpma+:leaf=8", 1)
    assert_clean(place)


# ---- while others change the graph -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, pytest.param(25, marks=pytest.mark.slow)])
def test_copies_from_four_threads_while_the_graph_changes(place, n):
    """The graph is a path that grows by an edge per epoch, so that a copy shows its epoch."""
    with DynamicGraph(place, 1000) as g:
        problems = list[BaseException]()

        def copies() -> None:
            try:
                for _ in range(n):
                    with g.copy(structure="csr" if g.epoch % 3 == 0 else None) as h:
                        assert h.num_edges == h.epoch
                        assert h.bfs(0).to_numpy().max() == h.epoch
                        h.insert([999], [998])
            except BaseException as error:
                problems.append(error)

        threads = [threading.Thread(target=copies) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and g.epoch < 990:
            g.insert([g.epoch], [g.epoch + 1])
        for thread in threads:
            thread.join(patience(60))
        assert not problems, problems
        assert g.num_edges == g.epoch
    assert_clean(place)


def test_copies_between_the_batches_of_a_stream_and_of_a_pipeline(place):
    """Each batch is an edge of a path on every rank, so that ranks of different epochs would show."""
    batches = [([i, 500 + i], [i + 1, 501 + i]) for i in range(200)]
    with DynamicGraph(place, 1000) as g:
        seen = list[int]()

        def look(report: Any) -> None:
            if report.epoch % 50 == 0:
                with g.copy() as h:
                    distances = h.bfs(0).to_numpy(), h.bfs(500).to_numpy()
                    assert h.epoch >= report.epoch
                    assert [values.max() for values in distances] == [h.epoch, h.epoch]
                    seen.append(h.epoch)

        g.stream(batches, on_batch=look)
        assert len(seen) == 4
        with g.pipeline() as pipeline:
            for i in range(200, 300):
                pipeline.update(EdgeBatch([i, 500 + i], [i + 1, 501 + i]))
                if i % 40 == 0:
                    with g.copy() as h:
                        assert h.epoch == i + 1
                        assert h.bfs(500).to_numpy().max() == h.epoch
        assert g.epoch == 300
    assert_clean(place)


def test_a_reader_of_a_published_graph_copies_it_and_needs_no_turn(client, other):
    with DynamicGraph(client, keys="string") as g:
        g.insert(["a", "b"], ["b", "c"])
        g.publish("roads")
        with DynamicGraph.attach(other, "roads") as reader:
            g.insert(["c"], ["d"])
            h = reader.copy()
        with g.pipeline() as pipeline:  # which keeps the turn
            pipeline.update(EdgeBatch(["a"], ["d"], keys="string"))
            assert (list(h), h.num_edges) == (["a", "b", "c", "d"], 3)
            assert h.bfs("a")["d"] == 3
            h.insert(["x"], ["a"])
        assert g.bfs("a")["d"] == 1
        assert list(g) == ["a", "b", "c", "d"]
        g.unpublish()
    assert h.num_edges == 4
    h.close()
    assert_clean(client)


def test_copies_in_coroutines(client):
    async def main() -> None:
        async with Client(client.scheduler.address, asynchronous=True) as asynchronous:  # noqa: SIM117
            async with DynamicGraph(asynchronous, 4) as g:
                await g.insert([0, 1], [1, 2])
                async with await g.copy(structure="csr") as h:
                    await asyncio.gather(g.insert([2], [3]), h.delete([0], [1]))
                    distances = await g.bfs(0), await h.bfs(0)
                    assert (await distances[0].to_numpy()).tolist() == [0, 1, 2, 3]
                    assert (await distances[1].to_numpy()).tolist() == [0, -1, -1, -1]
                    assert (h.structure, h.epoch, g.epoch) == ("csr", 2, 2)

    asyncio.run(main())
    assert_clean(client)


# ---- losses and leaks ------------------------------------------------------------------------------------------------


def test_a_lost_worker_loses_the_copy_and_recovery_does_not_bring_it_back(own_client, tmp_path):
    with DynamicGraph(own_client, N, store=tmp_path / "store", recover="auto") as g:
        g.insert([0, 1], [1, 2])
        with g.copy() as h:
            os.kill(own_client.submit(os.getpid, workers=[g.workers[1]]).result(), signal.SIGKILL)
            with g.copy() as after:  # the graph is recovered, and copied from its new workers
                assert (after.epoch, after.num_edges) == (1, 2)
                assert g.recoveries
                g.insert([2], [3])
                with pytest.raises(WorkerLost, match=r"copy of graph \w+, without a store, and does not come back"):
                    h.insert([3], [4])
                assert after.bfs(0).to_numpy()[:4].tolist() == [0, 1, 2, -1]


@pytest.mark.slow
def test_workers_die_while_the_graph_is_copied(tmp_path):
    """Whatever a copy finds, it is whole or not there, and nothing of it is left."""
    rng = fresh_rng()
    with processes(2) as client, DynamicGraph(client, N, store=tmp_path / "store", recover="auto") as g:
        g.insert(*rng.integers(0, N, (2, 300)))
        for _ in range(2):
            pid = client.submit(os.getpid, workers=[g.workers[int(rng.integers(2))]], pure=False).result()
            killer = threading.Timer(rng.uniform(0, 0.02), os.kill, (pid, signal.SIGKILL))
            killer.start()
            for _ in range(5):
                try:
                    with g.copy() as h:
                        assert h.fingerprint() == g.fingerprint()
                except WorkerLost as error:
                    assert "copy of graph" in str(error)  # noqa: PT017
            killer.join()
            assert g.insert([0], [0]).epoch == g.epoch
    # The cluster ends with the block: workers that kept a shard would not end in time.


STAGES = ("measure for a copy", "copy", "offer the copy", "adopt the copy")


@pytest.mark.parametrize(
    "recover", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["recovered", "without a store"]
)
@pytest.mark.parametrize("stage", [pytest.param(s, marks=() if s == "copy" else pytest.mark.slow) for s in STAGES])
def test_a_worker_is_killed_before_it_does(own_client, tmp_path, stage, recover):
    """A graph that recovers is copied from its new workers; the copy of another one raises, and leaves nothing."""
    store: dict[str, Any] = {"store": tmp_path / "store", "recover": "auto"} if recover else {"patience": 4}
    src, dst = fresh_rng().integers(0, N, (2, 300))
    with DynamicGraph(own_client, N, **store) as g:
        g.insert(src, dst)
        survivor, victim = g.workers
        own_client.run(before, stage, hit, signal.SIGKILL, workers=[victim])
        if recover:
            with g.copy() as h:
                assert (h.epoch, h.fingerprint()) == (1, g.fingerprint())
            assert len(g.recoveries) == 1
            assert g.insert([0], [0]).epoch == 2
            workers = g.workers
        else:
            with raises_in_time(WorkerLost, f"rank 1, the worker at {victim}"):
                g.copy()
            workers = [survivor]
    assert_clean(own_client, workers)
    with DynamicGraph(own_client, N, workers=[survivor]) as another:
        another.insert(src, dst)
        with another.copy() as h:
            assert h.fingerprint() == another.fingerprint()


def left_behind(graph: DynamicGraph, n: int) -> int:
    """The bytes that `n` copies leave in this process; one of three is only dropped."""

    def copies(n: int) -> None:
        for number in range(n):
            h = graph.copy(structure="csr" if number % 5 == 0 else None)
            if number % 3:
                h.close()
        gc.collect()

    copies(10)
    tracemalloc.start()
    try:
        copies(n)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("n", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_copies_in_this_process_leave_no_memory(n):
    with DynamicGraph(n_vertices=20_000) as g:
        g.insert(*fresh_rng().integers(0, 20_000, (2, 100_000)))
        nbytes = g.nbytes
        assert left_behind(g, n) < nbytes / 2
        assert g.nbytes == nbytes
    assert_clean(None)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_copies_leave_no_memory_on_workers(client):
    with DynamicGraph(client, 20_000) as g:
        g.insert(*fresh_rng().integers(0, 20_000, (2, 100_000)))
        left_behind(g, 100)
        before, nbytes = client.run(resident_bytes), g.nbytes
        assert left_behind(g, 1000) < nbytes / 2
        for worker, after in client.run(resident_bytes).items():
            assert after - before[worker] < 10 * nbytes, f"{after - before[worker]} bytes more after 1,000 copies"
        assert g.nbytes == nbytes
    assert_clean(client)


def leave_room(nbytes: int | None, dask_worker: Any) -> None:
    """Let a worker believe that its limit leaves so many bytes; None for what it does leave. Runs there."""
    budget = dask_worker.plugins["mgraph"].budget
    if nbytes is not None:
        budget._as_it_was, budget._left = budget._left, lambda: nbytes
    else:
        budget._left = budget._as_it_was


@pytest.mark.parametrize("short", [0, 1])
def test_without_memory_on_one_rank_no_rank_makes_a_copy(client, tmp_path, short):
    with DynamicGraph(client, N, weighted=True) as g:
        src, dst = fresh_rng().integers(0, N, (2, 300))
        g.insert(src, dst, np.ones(300))
        client.run(before, "copy", note, tmp_path / "copied")
        client.run(leave_room, 1000, workers=[g.workers[short]])
        try:
            with pytest.raises(CapacityError, match=rf"\d+ bytes are needed for a copy of .*{g.id}.* leaves 1000"):
                g.copy()
        finally:
            client.run(leave_room, None, workers=[g.workers[short]])
        assert not (tmp_path / "copied").exists()
        assert_only(client, g)
        with g.copy() as h:
            assert (tmp_path / "copied").exists()
            assert h.fingerprint() == g.fingerprint()
    assert_clean(client)


def test_a_rank_that_fails_while_it_copies_ends_the_copy_on_all(client):
    with DynamicGraph(client, N) as g:
        g.insert(*fresh_rng().integers(0, N, (2, 300)))
        for worker in g.workers:
            client.run(before, "copy", refuse, workers=[worker])
            with pytest.raises(CapacityError, match="no room"):
                g.copy()
            assert_only(client, g)
        assert g.insert([0], [1]).epoch == 2
        with g.copy() as h:
            assert h.fingerprint() == g.fingerprint()
    assert_clean(client)


def assert_only(client: Client, graph: DynamicGraph) -> None:
    """Check that the workers soon hold the shards of this graph, and no other."""
    end = time.monotonic() + patience(5)
    while (held := [[shard["graph"] for shard in shards] for shards in client.run(measured).values()]) != [
        [graph.id]
    ] * 2:
        assert time.monotonic() < end, held
        time.sleep(0.05)


def test_ctrl_c_in_a_copy_leaves_none(monkeypatch):
    with DynamicGraph(n_vertices=N) as g:
        g.insert([0], [1])
        real, made = creation.copied, list[Any]()

        def interrupted(*args: Any) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            made.append(weakref.ref(real(*args)))
            return made[0]()

        monkeypatch.setattr(creation, "copied", interrupted)
        with pytest.raises(KeyboardInterrupt):
            g.copy()
        gc.collect()
        assert made[0]() is None
        monkeypatch.undo()
        assert g.insert([1], [2]).epoch == 2
        with g.copy() as h:
            assert h.num_edges == 2


def test_without_memory_no_copy_is_made(monkeypatch):
    with DynamicGraph(n_vertices=N) as g:
        g.insert(*fresh_rng().integers(0, N, (2, 300)))
        monkeypatch.setattr("mgraph.budget.LARGE", 1)
        monkeypatch.setattr("mgraph.budget.host_memory_limit", lambda: 1000)
        with pytest.raises(CapacityError, match=rf"{g.nbytes} bytes are needed for a copy of graph {g.id}.* has 1000"):
            g.copy()
        monkeypatch.undo()
        with g.copy() as h:
            assert h.num_edges == g.num_edges
