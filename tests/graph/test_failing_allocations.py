"""Every allocation of every kind of call fails once: the call says so, the graph is as it was, and the next call works.

The default tests fail a random sample. The slow ones fail each allocation of at least 1 KiB, on the host NumPy's, those
that the budget grants, and the growth of arrays; on GPUs CuPy's, the driver's, the growth of arrays, and page-locked
memory.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from dask.distributed import Client, LocalCluster
from failing_allocations import Here, OnRank, each_fails_once, state_of, watched, watched_workers
from graph_clusters import NO_DASHBOARD, Clusters
from plain_graph import fresh_rng
from promise_records import note

from mgraph import DynamicGraph, EdgeBatch, Operations
from mgraph.structures import names

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*no room to order the vertices by degree", "ignore:.*vertices without edges could not be removed"
)

Call = Callable[[DynamicGraph], Any]
Make = Callable[..., DynamicGraph]

N, M, B = 2000, 6000, 400  #: vertices, edges and edges of a batch: each array of them has 1 KiB or more
RNG = np.random.default_rng(37)
SRC, DST = RNG.integers(0, N, (2, M))
WEIGHT = RNG.random(M).astype(np.float32)
SRC2, DST2 = RNG.integers(0, N, (2, B))
WEIGHT2 = RNG.random(B).astype(np.float32)
BATCH = EdgeBatch(SRC2, DST2, WEIGHT2)
MIXED = EdgeBatch(
    np.concatenate([SRC2, SRC[:B]]),
    np.concatenate([DST2, DST[:B]]),
    np.concatenate([WEIGHT2, WEIGHT2]),
    np.repeat(np.array([1, -1], np.int8), B),
)
KINDS = ["insert", "has_edge", "delete", "neighbors"] * (B // 4)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


# ---- graphs ----------------------------------------------------------------------------------------------------------


def plain(*place: Any, **options: Any) -> DynamicGraph:
    graph = DynamicGraph(*place, n_vertices=N, **{"weighted": True, "reverse": True, **options})
    graph.insert(SRC, DST, WEIGHT if graph.weighted else None)
    return graph


def undirected(*place: Any, **options: Any) -> DynamicGraph:
    return plain(*place, directed=False, reverse=False, **options)


def clustered(*place: Any, **options: Any) -> DynamicGraph:
    graph = DynamicGraph(*place, n_vertices=N, directed=False, **options)
    graph.insert(SRC, np.where(DST % 10, SRC // 100 * 100 + DST % 100, DST))
    return graph


def followed(make: Make, name: str, *place: Any, **options: Any) -> DynamicGraph:
    """A graph with a maintained result, for which changes are logged."""
    graph = make(*place, weighted=False, **options)
    graph.beside = graph.maintain(name)  # it ends with its last reference
    graph.beside.result()
    return graph


def timed(*place: Any, **options: Any) -> DynamicGraph:
    graph = DynamicGraph(*place, n_vertices=N, times=True, **options)
    graph.insert(SRC, DST, time=np.arange(M))
    return graph


def ints(ids: np.ndarray) -> np.ndarray:
    return ids * 7 + 10**9


def strings(ids: np.ndarray) -> np.ndarray:
    return np.array([f"key {number}" for number in ids])


def keyed(keys: Callable[[np.ndarray], np.ndarray], *place: Any, **options: Any) -> DynamicGraph:
    graph = DynamicGraph(*place, keys="string" if keys is strings else "int64", **options)
    graph.insert(keys(SRC), keys(DST))
    return graph


def grown(*place: Any, **options: Any) -> DynamicGraph:
    graph = DynamicGraph(*place, keys=None, **options)
    graph.insert(SRC, DST)
    return graph


# ---- calls -----------------------------------------------------------------------------------------------------------


def no_answer(call: Call) -> Call:
    """A call whose report is not compared."""

    def called(graph: DynamicGraph) -> None:
        call(graph)

    return called


def in_flight(graph: DynamicGraph) -> None:
    with graph.pipeline() as pipeline:
        report = pipeline.update(BATCH)
    report.result()


def maintained(name: str) -> Call:
    """Maintain a result, change the graph, and read it; the graph is then as it was."""

    def called(graph: DynamicGraph) -> Any:
        live = graph.maintain(name) if name != "bfs" else graph.maintain("bfs", source=0)
        live.result()
        return None

    return called


CHANGES: dict[str, tuple[Make, Call]] = {
    "insert": (plain, lambda graph: graph.insert(SRC2, DST2, WEIGHT2)),
    "insert, undirected": (undirected, lambda graph: graph.insert(SRC2, DST2, WEIGHT2)),
    "insert, undirected, maintained": (
        partial(followed, undirected, "connected_components"),
        lambda graph: graph.insert(SRC2, DST2),
    ),
    "insert, maintained": (partial(followed, plain, "pagerank"), lambda graph: graph.insert(SRC2, DST2)),
    "delete": (plain, lambda graph: graph.delete(SRC[:B], DST[:B])),
    "update": (plain, lambda graph: graph.update(MIXED)),
    "update, sum": (partial(plain, combine="sum"), lambda graph: graph.update(MIXED)),
    "delete_vertices": (plain, lambda graph: graph.delete_vertices(np.arange(300))),
    "add_vertices": (plain, lambda graph: graph.add_vertices(1000)),
    "grow": (grown, lambda graph: graph.insert(SRC2 + 1000, DST2)),
    "rebalance": (plain, lambda graph: graph.rebalance()),
    "reorder": (partial(plain, order="degree"), lambda graph: graph.reorder()),
    "pipeline": (plain, in_flight),
    "execute": (partial(plain, weighted=False), lambda graph: graph.execute(Operations(KINDS, SRC2, DST2))),
    "int64 insert": (partial(keyed, ints), lambda graph: graph.insert(ints(SRC2 + 1700), ints(DST2))),
    "int64 delete": (partial(keyed, ints), lambda graph: graph.delete(ints(SRC[:B]), ints(DST[:B]))),
    "int64 delete_vertices": (partial(keyed, ints), lambda graph: graph.delete_vertices(graph.vertices()[:300])),
    "int64 add_vertices": (partial(keyed, ints), lambda graph: graph.add_vertices(ints(np.arange(5000, 5500)))),
    "string insert": (partial(keyed, strings), lambda graph: graph.insert(strings(SRC2 + 1700), strings(DST2))),
    "string delete_vertices": (partial(keyed, strings), lambda graph: graph.delete_vertices(graph.vertices()[:300])),
    "insert, times": (timed, lambda graph: graph.insert(SRC2, DST2, time=np.arange(M, M + B))),
    "expire": (timed, lambda graph: graph.expire(3000)),
    "window": (partial(timed, window=5000), lambda graph: graph.insert(SRC2, DST2, time=np.arange(M, M + B) + 500)),
    "window_edges": (
        partial(timed, window_edges=5500),
        lambda graph: graph.insert(SRC2, DST2, time=np.arange(M, M + B) + 500),
    ),
}
#: changes that only some ways of taking data have
STREAMS: dict[str, tuple[Make, Call]] = {
    "ingest": (plain, lambda graph: graph.ingest([BATCH])),
    "stream": (plain, lambda graph: graph.stream([BATCH], progress=False)),
}
CHANGES = {name: (make, no_answer(call)) for name, (make, call) in CHANGES.items()}
STREAMS = {name: (make, no_answer(call)) for name, (make, call) in STREAMS.items()}
#: changes of graphs with each structure but the default one
ON_STRUCTURES = {
    f"{structure} {name}": (partial(CHANGES[name][0], structure=structure), CHANGES[name][1])
    for structure in names()[1:]
    for name in ("insert", "delete", "update", "add_vertices", "window")
}

PROGRAMS: dict[str, tuple[Make, Call]] = {
    "betweenness_centrality": (plain, lambda graph: graph.betweenness_centrality(k=2, seed=1).to_numpy()),
    "bfs": (plain, lambda graph: graph.bfs(0).to_numpy()),
    "clustering": (undirected, lambda graph: graph.clustering().to_numpy()),
    "connected_components": (plain, lambda graph: graph.connected_components().to_numpy()),
    "core_number": (undirected, lambda graph: graph.core_number().to_numpy()),
    "degree_centrality": (plain, lambda graph: graph.degree_centrality().to_numpy()),
    "distances": (plain, no_answer(lambda graph: graph.distances(SRC2[:20]))),
    "eigenvector_centrality": (plain, lambda graph: graph.eigenvector_centrality(max_iter=20, tol=10.0).to_numpy()),
    "gather": (plain, lambda graph: graph.gather(np.arange(N), "max").to_numpy()),
    "hits": (plain, lambda graph: graph.hits(max_iter=5, tol=10.0).hubs.to_numpy()),
    "jaccard": (undirected, lambda graph: graph.jaccard(np.stack([SRC2, DST2], axis=1))),
    "k_core": (undirected, lambda graph: graph.k_core(3).to_numpy()),
    "k_hop": (plain, no_answer(lambda graph: graph.k_hop([0, 1], 2))),
    "k_truss": (undirected, no_answer(lambda graph: graph.k_truss(3))),
    "katz_centrality": (plain, lambda graph: graph.katz_centrality(alpha=0.001).to_numpy()),
    "label_propagation": (undirected, lambda graph: graph.label_propagation().to_numpy()),
    "leiden": (clustered, no_answer(lambda graph: graph.leiden(seed=1))),
    "louvain": (undirected, no_answer(lambda graph: graph.louvain(seed=1))),
    "modularity": (undirected, lambda graph: graph.modularity(np.arange(N) % 7)),
    "multi_source_bfs": (plain, no_answer(lambda graph: graph.multi_source_bfs(np.arange(40)))),
    "overlap": (undirected, lambda graph: graph.overlap(np.stack([SRC2, DST2], axis=1))),
    "pagerank": (plain, lambda graph: graph.pagerank().to_numpy()),
    "personalised pagerank": (plain, lambda graph: graph.pagerank(personalization={0: 1.0}).to_numpy()),
    "random_walks": (plain, no_answer(lambda graph: graph.random_walks(np.arange(100), 5, seed=1))),
    "sample_neighbors": (plain, no_answer(lambda graph: graph.sample_neighbors(np.arange(100), [3, 2], seed=1))),
    "shortest_path": (undirected, no_answer(lambda graph: graph.shortest_path(int(SRC[0]), int(DST[1])))),
    "sssp": (plain, lambda graph: graph.sssp(0).to_numpy()),
    "strongly_connected_components": (plain, lambda graph: graph.strongly_connected_components().to_numpy()),
    "transitivity": (undirected, lambda graph: graph.transitivity()),
    "triangles": (undirected, lambda graph: graph.triangles().to_numpy()),
    "maintained components": (undirected, maintained("connected_components")),
    "maintained leiden": (clustered, maintained("leiden")),
    "maintained bfs": (plain, maintained("bfs")),
    "maintained pagerank": (plain, maintained("pagerank")),
    "maintained triangles": (undirected, maintained("triangles")),
}

READS: dict[str, tuple[Make, Call]] = {
    "has_edges": (plain, lambda graph: graph.has_edges(SRC2, DST2)),
    "weights": (plain, lambda graph: graph.weights(SRC2, DST2)),
    "degrees": (plain, lambda graph: graph.degrees(SRC2)),
    "neighbors": (plain, lambda graph: graph.neighbors(SRC2).dst),
    "to_csr": (plain, lambda graph: graph.to_csr().dst),
    "vertices": (partial(keyed, strings), lambda graph: graph.vertices()),
    "top": (plain, lambda graph: graph.pagerank().top(5)),
    "arithmetic": (plain, lambda graph: (graph.pagerank() * 2).to_numpy()),
    "value_counts": (plain, no_answer(lambda graph: graph.connected_components().value_counts())),
    "to_pandas": (plain, lambda graph: graph.to_pandas().to_numpy()),
    "to_arrow": (plain, no_answer(lambda graph: graph.to_arrow())),
    "to_polars": (plain, no_answer(lambda graph: graph.to_polars())),
    "to_scipy": (plain, lambda graph: graph.to_scipy().data),
    "to_networkx": (plain, lambda graph: nx.number_of_edges(graph.to_networkx())),
    "subgraph": (plain, lambda graph: closed(graph.subgraph(np.arange(500)))),
    "ego": (plain, lambda graph: closed(graph.ego(0, 2))),
    "copy": (plain, lambda graph: closed(graph.copy())),
}
if find_spec("polars") is None:
    del READS["to_polars"]


def closed(graph: DynamicGraph) -> tuple[int, ...]:
    """The state of a graph that a call has made."""
    try:
        return state_of(graph)
    finally:
        graph.close()


def converters(folder: Path) -> dict[str, Callable[[], DynamicGraph]]:
    """Ways into a graph from other libraries' data, and from files that are written here."""
    pa, pl, sp = pytest.importorskip("pyarrow"), pytest.importorskip("polars"), pytest.importorskip("scipy.sparse")
    frame = pd.DataFrame({"src": SRC, "dst": DST, "weight": WEIGHT})
    frame.to_parquet(folder / "edges.parquet")
    frame.to_csv(folder / "edges.csv", index=False)
    np.savez(folder / "edges.npz", src=SRC, dst=DST)
    table, matrix = pa.Table.from_pandas(frame), sp.coo_matrix((WEIGHT, (SRC, DST)), (N, N)).tocsr()
    graph = nx.gnm_random_graph(500, 1500, seed=1)
    return {
        "from_pandas": lambda: DynamicGraph.from_pandas(frame, weighted=True),
        "from_arrow": lambda: DynamicGraph.from_arrow(table, weighted=True),
        "from_polars": lambda: DynamicGraph.from_polars(pl.from_pandas(frame), weighted=True),
        "from_scipy": lambda: DynamicGraph.from_scipy(matrix, weighted=True),
        "from_networkx": lambda: DynamicGraph.from_networkx(graph),
        "from_dlpack": lambda: DynamicGraph.from_dlpack(SRC, DST),
        "from_parquet": lambda: DynamicGraph.from_parquet(folder / "edges.parquet", weighted=True),
        "from_csv": lambda: DynamicGraph.from_csv(folder / "edges.csv", weighted=True),
        "read npz": lambda: DynamicGraph.read(folder / "edges.npz"),
    }


CONVERTERS = ["from_pandas", "from_arrow", "from_polars", "from_scipy", "from_networkx", "from_dlpack", "from_parquet",
              "from_csv", "read npz"]  # fmt: skip


class Stores:
    """Graphs with stores, each in a folder of its own, and calls that read them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, count()

    def make(self, **options: Any) -> DynamicGraph:
        store = self._folder / f"{next(self._number)}"
        if "keys" in options:
            return keyed(strings, store=store)
        return plain(reverse=False, store=store, **options)

    @staticmethod
    def checked(call: Call) -> Call:
        """A call, after which the store has what the graph has."""

        def called(graph: DynamicGraph) -> None:
            call(graph)
            here = state_of(graph)
            copy = DynamicGraph.open(graph._storing.path, epoch=graph.epoch)
            assert closed(copy) == here

        return called

    def cases(self) -> dict[str, tuple[Make, Call]]:
        def saved(graph: DynamicGraph) -> None:
            graph.save(self._folder / f"{next(self._number)}")

        def insert(graph: DynamicGraph) -> None:
            graph.insert(SRC2, DST2, WEIGHT2)

        return {
            "stored insert": (self.make, insert),
            "background insert": (partial(self.make, sync="background"), insert),
            "stored delete_vertices": (self.make, no_answer(lambda graph: graph.delete_vertices(np.arange(300)))),
            "stored keys": (
                partial(self.make, keys="string"),
                no_answer(lambda graph: graph.insert(strings(SRC2 + 1700), strings(DST2))),
            ),
            "snapshot": (self.make, no_answer(lambda graph: graph.snapshot())),
            "save": (plain, saved),
            "at": (self.make, lambda graph: closed(graph.at(1))),
            "open a log": (partial(self.left, False), self.opened),
            "open a snapshot": (partial(self.left, True), self.opened),
            "open keys": (partial(self.left, False, keys="string"), self.opened),
            "open keys of a snapshot": (partial(self.left, True, keys="string"), self.opened),
        }

    def left(self, snapshot: bool, **options: Any) -> DynamicGraph:
        """A plain graph beside a closed store, whose path it knows."""
        stored = self.make(**options)
        stored.insert(*((strings(SRC2), strings(DST2)) if "keys" in options else (SRC2, DST2, WEIGHT2)))
        if snapshot:
            stored.snapshot()
        stored.delete_vertices(stored.vertices()[:100])
        stored.close()
        graph = DynamicGraph(n_vertices=3)
        graph.beside = stored._storing.path
        return graph

    @staticmethod
    def opened(graph: DynamicGraph) -> tuple[int, ...]:
        return closed(DynamicGraph.open(graph.beside))


STORED = ["stored insert", "background insert", "stored delete_vertices", "stored keys", "snapshot", "save", "at",
          "open a log", "open a snapshot", "open keys", "open keys of a snapshot"]  # fmt: skip


@pytest.fixture(autouse=True)
def watching(request: pytest.FixtureRequest) -> Iterator[None]:
    device = getattr(request.node, "callspec", None)
    with watched(device.params.get("device", "cpu") if device else "cpu"):
        yield


def fail_each(name: str, case: tuple[Make, Call], device: str = "cpu", **how: Any) -> None:
    make, call = case
    made = partial(make, device=device) if device == "cuda" else make
    failed = each_fails_once(made, call, **{"at": Here(device), **how})
    print(f"{name}: {failed} allocations failed")
    first = how.get("part", (0, 1))[0] == 0
    record = "allocations" if device == "cpu" else "allocations-gpus" if "at" in how else "allocations-gpu"
    note(record, calls=int(first), allocations=failed)


# ---- a sample --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", ["changes", "programs", "reads", "stores"])
def test_a_sample_of_allocations(tmp_path, group):
    rng = fresh_rng()
    cases = {
        "changes": CHANGES | STREAMS,
        "programs": PROGRAMS,
        "reads": READS,
        "stores": Stores(tmp_path).cases(),
    }[group]
    for name in rng.choice(list(cases), 3, replace=False).tolist():
        fail_each(name, cases[name], most=2, rng=rng)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.parametrize("group", ["changes", "structures", "programs", "reads"])
def test_an_allocation_of_each_call_on_a_gpu(group, device):
    rng = fresh_rng()
    cases = {"changes": CHANGES | STREAMS, "structures": ON_STRUCTURES, "programs": PROGRAMS, "reads": READS}[group]
    for name, case in cases.items():
        fail_each(name, case, device, most=1, rng=rng)


@pytest.mark.parametrize("name", ["snapshot", "read npz"])
def test_what_is_written_or_read_without_memory_is_no_error_of_a_file(tmp_path, name):
    if name == "snapshot":
        fail_each(name, Stores(tmp_path).cases()[name], most=6, rng=fresh_rng())
    else:
        convert = converters(tmp_path)[name]
        fail_each(name, (partial(DynamicGraph, n_vertices=3), lambda graph: closed(convert())))


# ---- every allocation ------------------------------------------------------------------------------------------------


def parts_of(name: str) -> list[tuple[int, int]]:
    """The parts of a call's allocations; Leiden has hundreds, which several processes take."""
    n = 8 if "leiden" in name else 1
    return [(k, n) for k in range(n)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*CHANGES, *STREAMS])
def test_every_allocation_of_a_change(name, device):
    fail_each(name, (CHANGES | STREAMS)[name], device)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ON_STRUCTURES)
def test_every_allocation_of_a_structure(name, device):
    fail_each(name, ON_STRUCTURES[name], device)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name in [*PROGRAMS, *READS] for part in parts_of(name)], ids=str
)
def test_every_allocation_of_an_algorithm_or_a_read(name, part, device):
    fail_each(name, (PROGRAMS | READS)[name], device, part=part)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CONVERTERS)
def test_every_allocation_of_a_converter(tmp_path, name):
    convert = converters(tmp_path)[name]
    fail_each(name, (partial(DynamicGraph, n_vertices=3), lambda graph: closed(convert())))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STORED)
def test_every_allocation_of_a_store_and_of_its_opening(tmp_path, name):
    fail_each(name, Stores(tmp_path).cases()[name])
    shutil.rmtree(tmp_path)


# ---- one rank at a time ----------------------------------------------------------------------------------------------

ON_RANKS = {
    **{name: CHANGES[name] for name in ("insert", "insert, undirected", "delete_vertices", "add_vertices", "grow",
       "rebalance", "reorder", "execute", "int64 insert", "window", "window_edges")},
    **{name: PROGRAMS[name] for name in ("bfs", "pagerank", "connected_components", "triangles", "sssp",
       "label_propagation", "k_truss", "core_number", "betweenness_centrality", "strongly_connected_components",
       "random_walks", "maintained components")},
    **{name: READS[name] for name in ("neighbors", "to_csr", "copy")},
    "ingest": (plain, no_answer(lambda graph: graph.ingest(a_part, steps=1))),
}  # fmt: skip


EXCHANGES = ["peer", "tcp", "peer+tcp:0,1"]  #: the last is of two hosts with a worker each


def a_part(rank: int, size: int, step: int) -> dict[str, np.ndarray]:
    return {"src": SRC2, "dst": DST2, "weight": WEIGHT2}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers in this process, whose allocations one allocator counts."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster) as client,
    ):
        yield client


def thread_of(rank: int, graph: DynamicGraph) -> int:
    """The native id of the thread of a graph's rank."""
    name = f"mgraph-{graph.id}-{rank}"
    (thread,) = (thread for thread in threading.enumerate() if thread.name == name)
    return int(thread.native_id or 0)


def fail_on_rank(client: Client, name: str, rank: int, exchange: str, **how: Any) -> None:
    make, call = ON_RANKS[name]
    case = partial(make, client, exchange=exchange), call
    fail_each(f"{name}, rank {rank}, {exchange}", case, at=Here(thread=partial(thread_of, rank)), **how)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_a_sample_of_allocations_of_a_rank(client, exchange):
    rng = fresh_rng()
    for name in rng.choice(list(ON_RANKS), 2, replace=False).tolist():
        fail_on_rank(client, name, int(rng.integers(2)), exchange, most=2, rng=rng)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("name", ON_RANKS)
def test_every_allocation_of_a_rank(client, name, rank, exchange):
    fail_on_rank(client, name, rank, exchange)


# ---- one process at a time -------------------------------------------------------------------------------------------

#: calls of a graph on the GPUs of a host; those that make a graph, such as a copy, open another exchange
ON_GPUS = CHANGES | ON_STRUCTURES | PROGRAMS | READS | {name: ON_RANKS[name] for name in ("ingest",)}


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.multigpu(2))])
def workers(clusters: Clusters, request: pytest.FixtureRequest) -> Iterator[tuple[Client, str]]:
    """Two worker processes whose allocations are counted, and their kind of device."""
    kind = request.param
    with clusters.lend(2, gpus=kind == "cuda") as client, watched_workers(client, kind):
        yield client, kind


def fail_on_worker(workers: tuple[Client, str], name: str, rank: int, exchange: str, **how: Any) -> None:
    client, kind = workers
    make, call = ON_GPUS[name]
    case, at = (partial(make, client, exchange=exchange), call), OnRank(client, rank, kind)
    fail_each(f"{name}, rank {rank}, {exchange}", case, kind, at=at, **how)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("exchange", ["peer", "tcp"])
def test_a_sample_of_allocations_of_a_worker(workers, exchange):
    rng = fresh_rng()
    for name in rng.choice(list(ON_GPUS), 2 if workers[1] == "cpu" else 12, replace=False).tolist():
        fail_on_worker(workers, name, int(rng.integers(2)), exchange, most=2, rng=rng)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("workers", [pytest.param("cuda", marks=pytest.mark.multigpu(2))], indirect=True)
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("name", "exchange", "part"),
    [(name, "peer", part) for name in ON_GPUS for part in parts_of(name)]
    + [(name, "tcp", (0, 1)) for name in ("insert", "rebalance", "pagerank", "connected_components", "to_csr", "copy")],
    ids=str,
)
def test_every_allocation_of_a_worker(workers, name, exchange, part, rank):
    fail_on_worker(workers, name, rank, exchange, part=part)
