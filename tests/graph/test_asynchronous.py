"""The calls of a graph as coroutines, with an asynchronous client on the event loop of the program."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD
from plain_graph import fresh_rng

from mgraph import AsyncDynamicGraph, DynamicGraph, EdgeBatch, GraphClosed, UnknownVertex, WorkerLost
from mgraph.client.asynchronous import AsyncHandle, _handle, _Thread
from mgraph.client.batches.pending import PendingReport
from mgraph.client.batches.pipeline import Pipeline
from mgraph.client.calls.coordinator import Coordinator

N = 100


def run(client: Client, body: Callable[[Client], Awaitable[None]]) -> None:
    """Run `body` with an asynchronous client of the same cluster."""

    async def whole() -> None:
        async with Client(client.scheduler.address, asynchronous=True) as other:
            await body(other)

    asyncio.run(whole())


@asynccontextmanager
async def ticking():
    """The event loop is never held up for long."""
    longest, loop = 0.0, asyncio.get_running_loop()

    async def tick() -> None:
        nonlocal longest
        while True:
            before = loop.time()
            await asyncio.sleep(0.01)
            longest = max(longest, loop.time() - before)

    task = asyncio.create_task(tick())
    yield
    task.cancel()
    assert longest < 1, f"the event loop stood still for {longest:.2f} s"


def test_a_program_on_a_cluster_of_its_own():
    async def body() -> None:
        async with (
            LocalCluster(n_workers=2, processes=False, asynchronous=True, **NO_DASHBOARD) as cluster,
            Client(cluster, asynchronous=True) as client,
            DynamicGraph(client, n_vertices=5) as g,
            ticking(),
        ):
            assert isinstance(g, AsyncDynamicGraph)
            report = await g.insert([0, 1, 2], [1, 2, 3])
            assert (report.inserted, g.epoch, g.num_edges, g.num_vertices) == (3, 1, 3, 5)
            found = await g.bfs(0, predecessors=True)
            assert (await found.to_numpy()).tolist() == [0, 1, 2, 3, -1]
            assert (await found.predecessors.to_numpy()).tolist() == [-1, 0, 1, 2, -1]
            assert await g.in_thread(lambda graph, ranks: int((ranks + 1).max()), found) == 4
            # Python has answers of its own to these, which would be wrong.
            for wrong in (lambda: found == 0, lambda: found != 0, lambda: bool(found), lambda: np.asarray(found)):
                with pytest.raises(TypeError, match="of <async <bfs: .*cannot be awaited; in_thread of the graph"):
                    wrong()
            assert g == g and g != found and {found: 1}[found] == 1
            async with await g.maintain("connected_components") as live, await g.pipeline() as pipeline:
                pending = [await pipeline.update(EdgeBatch([3], [v])) for v in (0, 4)]
                assert [report.inserted for report in await asyncio.gather(*pending)] == [1, 1]
                assert (await (await live.result()).to_numpy()).tolist() == [0] * 5
            assert await g.durable_epoch == 0
            with pytest.raises(UnknownVertex):
                await g.insert([9], [0])
            with pytest.raises(RuntimeError, match="must not be made from the client's event loop"):
                found._target.to_numpy()
        with pytest.raises(GraphClosed):
            await g.degrees()

    asyncio.run(body())


@pytest.mark.both_ways(comms="slow")
def test_calls_of_many_tasks(client):
    rng = fresh_rng()
    edges = rng.integers(0, N, (20, 2, 30))

    async def body(client: Client) -> None:
        async with DynamicGraph(client, N) as g:
            await asyncio.gather(*(g.insert(*batch) for batch in edges), g.pagerank(), g.to_csr())
            assert g.epoch == len(edges)
            csr = await g.to_csr()
            src = np.repeat(np.arange(N), np.diff(csr.offsets))
            there = set(zip(src.tolist(), csr.dst.tolist(), strict=True))
            assert there == set(zip(*edges.transpose(1, 0, 2).reshape(2, -1).tolist(), strict=True))

    run(client, body)


def test_graphs_that_others_make(client, tmp_path):
    async def body(client: Client) -> None:
        g = await DynamicGraph(client, 3, store=tmp_path / "store")
        await g.insert([0], [1])
        await g.insert([1], [2])
        assert await g.durable_epoch == 2
        async with await g.at(1) as before:
            assert (before.num_edges, g.num_edges) == (1, 2)
        await g.close()
        async with DynamicGraph.open(client, tmp_path / "store") as again:
            assert again.epoch == 2
        made = DynamicGraph(client, 3)
        with pytest.raises(GraphClosed, match="not made yet"):
            _ = made.num_edges

    run(client, body)


@pytest.mark.parametrize("how", ["fails", "is cancelled before", "is cancelled after"])
def test_a_graph_whose_making_failed_is_awaited_again(client, monkeypatch, how):
    """Several tasks may await it, too: it is made once."""
    make, made, entered = DynamicGraph.__init__, [], threading.Event()

    def late(self, *args, **kwargs):
        if how == "fails":
            raise WorkerLost("not now")
        if how == "is cancelled after":
            make(self, *args, **kwargs)
        entered.set()
        time.sleep(0.2)
        if how == "is cancelled before":
            raise KeyboardInterrupt

    def count(self, *args, **kwargs):
        made.append(self)
        make(self, *args, **kwargs)

    async def body(client: Client) -> None:
        g = DynamicGraph(client, 3)
        with monkeypatch.context() as patch:
            patch.setattr(DynamicGraph, "__init__", late)
            task = asyncio.create_task(g.__aenter__())
            while not (entered.is_set() or task.done()):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises((WorkerLost, asyncio.CancelledError)):
                await task
        monkeypatch.setattr(DynamicGraph, "__init__", count)
        await asyncio.gather(g.__aenter__(), g.__aenter__())
        assert len(made) == (how != "is cancelled after")
        assert (await g.insert([0], [1])).epoch == 1
        await g.close()

    run(client, body)


def test_a_cancelled_pipeline_names_the_cancellation(client):
    async def body(client: Client) -> None:
        async with DynamicGraph(client, N) as g:
            pipeline = await g.pipeline()
            with pytest.raises(asyncio.CancelledError):
                async with pipeline:
                    raise asyncio.CancelledError
            with pytest.raises(GraphClosed, match="was dropped because of the cancellation of a coroutine"):
                pipeline._target._outcomes.check()

    run(client, body)


@pytest.mark.parametrize("seconds", [0.02, 0.4, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.0, 0.1))])
def test_a_cancelled_batch_is_whole_or_not_there(client, seconds):
    rng = fresh_rng()
    batch = EdgeBatch(rng.integers(0, N, 300_000), rng.integers(0, N, 300_000))

    async def body(client: Client) -> None:
        async with DynamicGraph(client, N) as g:
            await g.insert([0], [1])
            for _ in range(3):
                epoch, edges = g.epoch, await g.fingerprint()
                task = asyncio.create_task(g.update(batch))
                await asyncio.sleep(seconds)
                task.cancel()
                done = await asyncio.gather(task, return_exceptions=True)
                assert isinstance(done[0], asyncio.CancelledError) or done[0].epoch == epoch + 1
                now = await g.fingerprint()
                assert now == edges if g.epoch == epoch else g.epoch == epoch + 1
                assert len({state.epoch for state in g._target._directory.coordinator.status.states}) == 1
            assert (await g.delete(*np.divmod(np.arange(N * N), N))).deleted > 0

    run(client, body)


@pytest.mark.both_ways
def test_cancellation_ends_a_call_that_waits(client, monkeypatch):
    """As by a timeout; a call behind it that has not begun is cancelled too, and never begins."""
    entered = threading.Event()
    launch = Coordinator._call_locked

    async def late(self, call, *args):
        if call.name == "update":
            entered.set()
            await asyncio.sleep(60)
        return await launch(self, call, *args)

    async def body(client: Client) -> None:
        async with DynamicGraph(client, N) as g:
            with monkeypatch.context() as patch:
                patch.setattr(Coordinator, "_call_locked", late)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await asyncio.gather(g.insert([0], [1]), g.insert([1], [2]))
                assert entered.is_set()
            assert (g.epoch, (await g.insert([2], [3])).inserted) == (0, 1)

    run(client, body)


def test_a_failed_report_that_nobody_awaits_is_not_logged(caplog):
    """The end of the pipeline raises the same error."""

    async def body() -> None:
        pending = PendingReport(None, lambda: None)  # type: ignore[arg-type]
        report = _handle(pending, SimpleNamespace(later=lambda work: None))  # type: ignore[arg-type]
        pending.set_exception(GraphClosed("the batch was dropped"))
        while not report.done():
            await asyncio.sleep(0)
        del report, pending
        gc.collect()

    asyncio.run(body())
    assert "the batch was dropped" not in caplog.text


@pytest.mark.parametrize("stage", ["enters", "leaves"])
def test_a_cancelled_pipeline_ends_its_turn_with_a_published_graph(client, monkeypatch, stage):
    """Also where its end has to wait in the graph's thread, and where it was entered when it was cancelled."""
    enter, slow = Pipeline.__enter__, []

    def late(self):
        made = enter(self)
        time.sleep(0.5 if stage == "enters" else 0)
        return made

    async def use(g: AsyncDynamicGraph) -> None:
        async with await g.pipeline() as pipeline:
            await pipeline.update(EdgeBatch([0], [1]))
            slow.append(asyncio.create_task(g.in_thread(lambda graph: time.sleep(0.5))))
            await asyncio.sleep(0)

    async def body(client: Client) -> None:
        async with DynamicGraph(client, N) as g:
            await g.publish(stage)
            async with DynamicGraph.attach(client, stage) as h:
                with monkeypatch.context() as patch:
                    patch.setattr(Pipeline, "__enter__", late)
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.3):
                            await use(g)
                async with asyncio.timeout(10):
                    assert (await h.insert([2], [3])).inserted == 1
            assert len(await asyncio.gather(*slow)) == (stage == "leaves")
            await g.unpublish()

    run(client, body)


def test_a_block_that_is_entered_after_two_cancellations_is_left():
    class Target:
        def __enter__(self) -> None:
            came.append("enter")
            time.sleep(0.2)

        def __exit__(self, *exc: object) -> None:
            came.append("exit")

    came: list[str] = []

    async def body() -> None:
        handle = AsyncHandle(Target(), _Thread())
        task = asyncio.create_task(handle.__aenter__())
        while not came:
            await asyncio.sleep(0.01)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await task
        await handle._thread.run(lambda: came.append("next"))

    asyncio.run(body())
    assert came == ["enter", "exit", "next"]


def test_properties_do_not_wait_on_the_event_loop(client, monkeypatch):
    """After a cancellation too, while another thread has the lock of a published graph."""
    has_lock, end = threading.Event(), threading.Event()

    def hold(graph) -> None:
        with graph._directory.coordinator.lock:
            has_lock.set()
            end.wait(5)

    async def body(client: Client) -> None:
        async with DynamicGraph(client, N) as g:
            await g.insert([0], [1])
            await g.publish("held")
            monkeypatch.setattr(g._target._directory.coordinator, "_interrupted", True)
            task = asyncio.create_task(g.in_thread(hold))
            await asyncio.to_thread(has_lock.wait)
            began = time.monotonic()
            assert (g.epoch, g.num_edges, g.num_vertices, g.nbytes > 0) == (1, 1, N, True)
            assert time.monotonic() - began < 2
            end.set()
            await task
            assert await g.in_thread(lambda graph: graph.epoch) == 1
            await g.unpublish()

    run(client, body)


def test_a_cancelled_end_of_a_pipeline_is_not_logged(caplog):
    """It is made in its turn, as after Ctrl-C, and nobody waits for it."""
    release = threading.Event()

    def leave() -> None:
        raise KeyboardInterrupt

    async def body() -> None:
        thread = _Thread()
        busy = asyncio.create_task(thread.run(release.wait))
        leaving = asyncio.create_task(thread.run(leave, always=True))
        await asyncio.sleep(0.05)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        release.set()
        await busy
        await thread.run(int)
        del busy, leaving
        gc.collect()

    asyncio.run(body())
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("n", [1, 50_000])  # in a group, and alone
def test_a_batch_that_is_recalled_before_its_flight_begins(client, monkeypatch, n):
    launch = Coordinator._launch

    async def recalled(self, *args):
        await launch(self, *args)
        await self._recall()  # in the same step of the event loop

    with DynamicGraph(client, N) as g:
        with monkeypatch.context() as patch:
            patch.setattr(Coordinator, "_launch", recalled)
            with suppress(GraphClosed), g.pipeline() as pipeline:  # the batch was dropped
                pipeline.update(EdgeBatch(np.arange(n) % N, np.arange(n) % N))
        # The workers may have applied it before the abort reached them.
        before = g.epoch, g.num_edges
        assert before in ((0, 0), (1, min(n, N)))
        assert (g.insert([0], [1]).epoch, g.num_edges) == (before[0] + 1, before[1] + 1)
