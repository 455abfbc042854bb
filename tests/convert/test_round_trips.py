"""What goes into a graph comes out of it again: every converter, on random graphs."""

from __future__ import annotations

import dask.dataframe as dd
import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import scipy.sparse as sp
from graph_clusters import NO_DASHBOARD
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mgraph import DynamicGraph, InvalidOption

pl = pytest.importorskip("polars")


class Tensor:
    """An array of which nothing but DLPack is known."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


some = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

IDS = st.integers(0, 12)
WEIGHTS = st.floats(width=32, allow_nan=False)


@st.composite
def tables(draw) -> tuple[pd.DataFrame, bool, bool]:
    """A table with repeats and loops, and whether its graph is directed and weighted."""
    rows = draw(st.lists(st.tuples(IDS, IDS, WEIGHTS), min_size=1, max_size=30))
    frame = pd.DataFrame(rows, columns=["source", "target", "weight"])
    return frame, draw(st.booleans()), draw(st.booleans())


def model(frame: pd.DataFrame, directed: bool, weighted: bool) -> dict[tuple[int, int], float]:
    """Each edge and its weight; of repeats the last one counts."""
    edges = {}
    for u, v, w in zip(frame["source"], frame["target"], frame["weight"], strict=True):
        edges[(u, v) if directed else (min(u, v), max(u, v))] = float(w) if weighted else 1.0
    return edges


def found(frame: pd.DataFrame) -> dict[tuple[int, int], float]:
    """The edges of a frame that came out; no edge comes twice."""
    weights = frame["weight"].tolist() if "weight" in frame else [1.0] * len(frame)
    pairs = list(zip(frame["source"].tolist(), frame["target"].tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return dict(zip(pairs, weights, strict=True))


def check(graph: DynamicGraph, want: dict[tuple[int, int], float], n: int) -> None:
    """The graph has these edges, by each way out of it."""
    with graph:
        assert graph.num_vertices == n
        assert found(graph.to_pandas()) == want
        assert found(graph.to_arrow().to_pandas()) == want
        assert found(graph.to_polars().to_pandas()) == want
        made = graph.to_networkx()
        assert (sorted(made.nodes), made.is_directed()) == (list(range(n)), graph.directed)
        assert {
            e if graph.directed else (min(e), max(e)): w
            for *pair, w in made.edges(data="weight", default=1.0)
            for e in [tuple(pair)]
        } == want
        matrix = graph.to_scipy().tocoo()
        arcs = dict(zip(zip(matrix.row.tolist(), matrix.col.tolist(), strict=True), matrix.data.tolist(), strict=True))
        assert arcs == want if graph.directed else arcs == want | {(v, u): w for (u, v), w in want.items()}


@some
@given(tables())
def test_frames_and_tables(case):
    frame, directed, weighted = case
    want, n = model(*case), int(frame[["source", "target"]].max().max()) + 1
    options = {"directed": directed, **({"weight": "weight"} if weighted else {"weighted": False})}
    for source in (
        frame,
        frame.astype({"source": "Int64", "target": "uint16"}),
        frame.astype({"source": "category", "target": object}),
        frame.astype({"source": "float64"}),
    ):
        check(DynamicGraph.from_pandas(source, **options), want, n)
    table = pa.Table.from_pandas(frame)
    for made in (table, table.set_column(0, "source", table["source"].dictionary_encode()), table.to_batches()[0]):
        check(DynamicGraph.from_arrow(made, **options), want, n)
    for made in (pl.DataFrame(table), pl.LazyFrame(table)):
        check(DynamicGraph.from_polars(made, **options), want, n)
    dask_frame = dd.from_pandas(frame, npartitions=3, sort=False)
    check(DynamicGraph.from_dask(dask_frame, **options), want, n)


@some
@given(tables())
def test_arrays(case):
    frame, directed, weighted = case
    want, n = model(*case), int(frame[["source", "target"]].max().max()) + 1
    for dtype in (np.int64, np.uint32, np.int8):
        ends = frame[["source", "target"]].to_numpy(dtype).T
        weight = frame["weight"].to_numpy(np.float32) if weighted else None
        check(DynamicGraph.from_dlpack(*map(Tensor, ends), weight, directed=directed), want, n)


@some
@given(tables())
def test_files(tmp_path, case):
    frame, directed, weighted = case
    want, n = model(*case), int(frame[["source", "target"]].max().max()) + 1
    options = {"directed": directed, "weight": "w" if weighted else None}
    renamed = frame.rename(columns={"source": "from", "target": "to", "weight": "w"}).assign(note="text")
    parquet.write_table(pa.Table.from_pandas(renamed), tmp_path / "edges.parquet")
    check(DynamicGraph.from_parquet(tmp_path / "edges.parquet", "from", "to", **options), want, n)
    renamed.to_csv(tmp_path / "edges.csv", index=False)
    check(DynamicGraph.from_csv(tmp_path / "edges.csv", "from", "to", **options), want, n)
    renamed.to_csv(tmp_path / "edges.tsv.gz", index=False, sep="\t")
    made = DynamicGraph.from_csv(str(tmp_path / "edges.tsv.gz"), "from", "to", delimiter="\t", **options)
    check(made, want, n)


@some
@given(tables())
def test_networkx(case):
    _, directed, weighted = case
    want = model(*case)
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_nodes_from(range(5))
    graph.add_weighted_edges_from((u, v, w) for (u, v), w in want.items())
    graph.add_nodes_from(range(max(graph.nodes)))  # numbers with gaps would be keys
    n = len(graph)
    options = {"weight": "weight"} if weighted else {"weighted": False}
    check(DynamicGraph.from_networkx(graph, **options), want, n)
    if not directed:
        both = want | {(v, u): w for (u, v), w in want.items()}
        check(DynamicGraph.from_networkx(graph, directed=True, **options), both, n)


@some
@given(tables())
def test_scipy(case):
    _, directed, weighted = case
    want, n = model(*case), 13
    arcs = want if directed else want | {(v, u): w for (u, v), w in want.items()}
    ends, data = np.array([*arcs]).reshape(-1, 2).T, np.array([*arcs.values()], np.float32)
    matrix = sp.coo_array((data, (ends[0], ends[1])), shape=(n, n))
    for made in (matrix, matrix.tocsc(), sp.csr_matrix(matrix)):
        check(DynamicGraph.from_scipy(made, weighted=weighted, directed=directed), want, n)


def test_entries_at_the_same_place_are_added_up_and_the_matrix_is_left_alone():
    matrix = sp.csr_array(([1.0, 2.0, 0.0], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    with DynamicGraph.from_scipy(matrix, weighted=True) as graph:
        assert found(graph.to_pandas()) == {(0, 1): 3.0, (1, 0): 0.0}
    assert matrix.nnz == 3


def test_graphs_without_edges():
    empty = pd.DataFrame({"source": [], "target": []})
    with DynamicGraph.from_pandas(empty, keys="string") as graph:
        assert graph.to_arrow().schema.types == [pa.string()] * 2
        assert graph.to_polars().dtypes == [pl.String] * 2
    with DynamicGraph.from_pandas(pd.DataFrame({"source": [], "target": []}), n_vertices=3) as graph:
        assert (graph.num_vertices, graph.num_edges, len(graph.to_pandas())) == (3, 0, 0)
        assert graph.to_networkx().number_of_nodes() == 3
        assert graph.to_arrow().num_rows == graph.to_scipy().nnz == 0
    with DynamicGraph.from_pandas(pd.DataFrame({"source": [0], "target": [1]})) as graph:
        assert (graph.num_vertices, graph.insert([5], [1]).epoch, graph.num_vertices) == (2, 2, 6)
    with DynamicGraph.from_networkx(nx.Graph()) as graph:
        assert (graph.num_vertices, graph.directed) == (0, False)
    with DynamicGraph.from_scipy(sp.csr_array((2, 2))) as graph:
        assert (graph.num_vertices, graph.num_edges) == (2, 0)


def test_names_of_columns_on_the_way_out():
    with DynamicGraph(n_vertices=2, weighted=True, times="datetime64[D]") as graph:
        graph.insert([0], [1], [2.0], time="2024-05-01")
        assert [*graph.to_pandas("u", 0, weight=None)] == ["u", 0, "time"]
        assert graph.to_arrow(weight=None, time=None).column_names == ["source", "target"]
        assert graph.to_polars(time=None).columns == ["source", "target", "weight"]
        assert [*graph.to_networkx(time=None).edges(data=True)] == [(0, 1, {"weight": 2.0})]
        for convert in (graph.to_pandas, graph.to_arrow, graph.to_polars):
            for bad in (None, ["a"]):
                with pytest.raises(InvalidOption, match=r"source is .*; it must be a name"):
                    convert(source=bad)
        for convert in (graph.to_arrow, graph.to_polars):
            with pytest.raises(InvalidOption, match="weight is 0; it must be a name"):
                convert(weight=0)
        with pytest.raises(InvalidOption, match=r"weight is \['w'\]; it must be a name"):
            graph.to_networkx(["w"])


def test_options_go_to_the_graph_and_columns_can_be_named():
    frame = pd.DataFrame({"a": [0, 1], "b": [1, 2], "c": [0.5, 1.5]})
    made = DynamicGraph.from_pandas(frame, "a", "b", "c", n_vertices=9, reverse=True, structure="csr", device="cpu")
    with made as graph:
        assert (graph.num_vertices, graph.reverse, graph.structure, graph.weighted) == (9, True, "csr", True)
        assert list(graph.to_pandas("x", "y", "z").columns) == ["x", "y", "z"]
        assert graph.to_networkx("length").edges[1, 2] == {"length": 1.5}
        with pytest.raises(ValueError, match="need different names"):
            graph.to_arrow("x", "x")


def test_onto_the_workers_of_a_cluster():
    from dask.distributed import Client, LocalCluster

    frame = pd.DataFrame({"source": [0, 1, 5], "target": [1, 2, 0]})
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster) as client,
        DynamicGraph.from_pandas(frame, client=client) as graph,
    ):
        assert len(graph.workers) == 2
        assert found(graph.to_pandas()) == model(frame.assign(weight=1.0), True, False)
        assert graph.bfs(5).to_series().tolist() == [1, 2, 3, -1, -1, 0]
        with graph.subgraph([5, 0]) as part:
            assert (part.workers, found(part.to_pandas())) == (("this process",), {(5, 0): 1.0})


NAMES = ["", "ada", "Grace", "é", "日本", "x" * 40]
HUGE = [-(2**63), -1, 0, 7, 2**40, 2**63 - 1]


@some
@given(tables(), st.sampled_from([NAMES, HUGE]))
def test_keys(tmp_path, case, names):
    frame, directed, weighted = case
    frame = frame.assign(**{end: [names[i % len(names)] for i in frame[end]] for end in ("source", "target")})
    want, options = {}, {"directed": directed, **({"weight": "weight"} if weighted else {"weighted": False})}
    for u, v, w in frame.itertuples(index=False):
        pair = (u, v) if directed or (v, u) not in want else (v, u)
        want[pair] = float(w) if weighted else 1.0
    kind = "string" if names is NAMES else "int64"
    table = pa.Table.from_pandas(frame)
    parquet.write_table(table, tmp_path / "edges.parquet")
    frame.to_csv(tmp_path / "edges.csv", index=False)
    category = frame.astype({"source": "category", "target": "category"})
    made = nx.DiGraph() if directed else nx.Graph()
    made.add_node(names[-1])
    made.add_weighted_edges_from(frame.itertuples(index=False), weight="weight")
    for graph in (
        DynamicGraph.from_pandas(frame, keys=kind, **options),
        DynamicGraph.from_pandas(category, keys=kind, **options),
        DynamicGraph.from_arrow(table, keys=kind, **options),
        DynamicGraph.from_polars(pl.DataFrame(table), keys=kind, **options),
        DynamicGraph.from_parquet(tmp_path / "edges.parquet", keys=kind, **options),
        DynamicGraph.from_csv(tmp_path / "edges.csv", keys=kind, **options),
        DynamicGraph.from_networkx(made, keys=kind, **{**options, "directed": None}),
    ):
        with graph:
            assert graph.keys == kind
            for out in (graph.to_pandas(), graph.to_arrow().to_pandas(), nx.to_pandas_edgelist(graph.to_networkx())):
                assert undirected(found(out), directed) == undirected(want, directed)
            assert set(graph.vertices().tolist()) - {names[-1]} == {end for pair in want for end in pair} - {names[-1]}
            assert graph.to_scipy().nnz == sum(1 if directed or u == v else 2 for u, v in want)


def undirected(edges: dict, directed: bool) -> dict:
    """Edges by their set of ends, if they have no direction."""
    return edges if directed else {frozenset(pair): w for pair, w in edges.items()}


def test_what_frames_choose():
    for column, kind in ((["a", "b"], "string"), ([-1, 5], "int64"), ([0, 1029 + 8], "int64"), ([0, 1028], None)):
        with DynamicGraph.from_pandas(pd.DataFrame({"source": column, "target": column})) as graph:
            assert graph.keys == kind
    with DynamicGraph.from_networkx(nx.path_graph(["x", "y", "z"])) as graph:
        assert graph.bfs("x").to_series().to_dict() == {"x": 0, "y": 1, "z": 2}
