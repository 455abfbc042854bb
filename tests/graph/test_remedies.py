"""Messages about input name the value, the limit, and what to write instead."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import dask.dataframe as dd
import networkx as nx
import numpy as np
import pandas as pd
import pytest

from mgraph import DynamicGraph, InvalidBatch, InvalidOption, MgraphError, ReadError, UnknownVertex, facade

PAIRS = [("ada", "b"), ("b", "c"), ("x", "y")]
GROW = "add_vertices adds more, and so does insert into a graph made without n_vertices"
STRINGS = r"the graph's keys are strings, as keys= or its first edges say; astype\(str\) makes strings"
INTEGERS = 'the graph\'s keys are int64, as keys= or its first edges say; keys="string" takes strings'
MIXED = r"vertices are whole numbers or strings, all of one kind; astype\(str\) makes strings"


@pytest.fixture(scope="module")
def named():
    """An undirected graph of strings."""
    with DynamicGraph(directed=False) as graph:
        graph.insert(PAIRS)
        yield graph


@pytest.mark.parametrize("call", ["insert", "delete", "ingest", "stream", "pipeline"])
def test_a_graph_of_fixed_size_says_how_others_grow(call):
    with DynamicGraph(n_vertices=2) as graph:
        graph.insert(0, 1)
        with pytest.raises(UnknownVertex, match=rf"dst\[0\] is 5; the graph has 2 vertices, 0 to 1; {GROW}"):
            if call == "pipeline":
                from mgraph import EdgeBatch

                with graph.pipeline() as pipeline:
                    pipeline.update(EdgeBatch([0], [5]))
            elif call in ("ingest", "stream"):
                getattr(graph, call)([([0], [5])])
            else:
                getattr(graph, call)([0], [5])
        assert (graph.epoch, graph.num_edges) == (1, 1)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (([1], [10**12]), r'dst\[0\] is 1000000000000; .* 4294967294; a graph with keys="int64" takes any integers'),
        (([0], [-1]), r'dst\[0\] is -1; vertex ids run from 0 .* a graph with keys="int64" takes any integers'),
        (([0], ["1"]), r"dst\[0\] is '1'; .* keys=\"string\" takes strings, and astype\(int\) makes numbers of these"),
        (([0], ["ada"]), r"dst\[0\] is 'ada'; vertex ids are whole numbers.*keys=\"string\" takes strings"),
    ],
)
def test_ids_name_the_keys_that_would_do(edges, message):
    with DynamicGraph(n_vertices=2) as graph, pytest.raises(InvalidBatch, match=message):
        graph.insert(*edges)


@pytest.mark.parametrize(
    ("first", "edges", "message"),
    [
        ((["a"], ["b"]), ([5], ["b"]), rf"src\[0\] is 5; {STRINGS}"),
        (([10**9], [1]), (["a"], [1]), rf"src\[0\] is 'a'; {INTEGERS}"),
        (None, (["a", 5], ["b", "c"]), rf"src\[1\] is 5; {STRINGS}"),
        (None, (np.array([2**62, 0.5], object), [1, 2]), rf"src\[1\] is 0.5; {MIXED}"),
        (None, ([(1, 2), (3, 4)], [1, 2]), "2 dimensions; keys must be in a 1-dimensional array"),
        (None, (np.array(["2024-01-01"], "datetime64[D]"), [1]), rf"is 2024-01-01, and the column is .*; {MIXED}"),
    ],
)
def test_kinds_of_keys_say_who_chose_them(first, edges, message):
    with DynamicGraph() as graph:
        if first is not None:
            graph.insert(*first)
        with pytest.raises(InvalidBatch, match=message):
            graph.insert(*edges)


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (
            pd.DataFrame([[1, 2]]),
            {},
            r"no column 'source'; its columns are 0, 1; the ends are 'source' and 'target', or 'src' and 'dst': "
            r"source= and target= name others, as in source=0, target=1(\n|$)",
        ),
        (pd.DataFrame({"from": [1], "to": [2]}), {}, r"as in source='from', target='to'(\n|$)"),
        (pd.DataFrame({"from": [1], "to": [2]}), {"source": "form"}, "no column 'form'.*; did you mean 'from'"),
        (pd.DataFrame({"source": [1], 7: [2]}), {"target": 8}, r"no column 8; its columns are 'source', 7(\n|$)"),
    ],
)
def test_columns_that_are_missing_say_how_to_name_others(frame, options, message):
    with DynamicGraph() as graph:
        for call in (DynamicGraph.from_pandas, graph.insert, graph.stream):
            with pytest.raises(InvalidBatch, match=message):
                call(frame, **options)
        graph.insert(pd.DataFrame([[1, 2]]), source=0, target=1)
        assert graph.has_edge(1, 2)


def test_files_without_a_line_of_names(tmp_path):
    plain, other = tmp_path / "plain.csv", tmp_path / "other.csv"
    plain.write_text("0,1\n1,2\n")
    other.write_text("source;target\n0;1\n")
    with pytest.raises(ReadError, match=r"its columns are '0', '1'; .*read\(path, source=0, target=1\) counts columns"):
        DynamicGraph.read(plain)
    with pytest.raises(ReadError, match=r"'source;target'; from_csv\(path, delimiter=';'\)"):
        DynamicGraph.read(other)
    assert DynamicGraph.read(plain, source=0, target=1).num_edges == 2
    assert DynamicGraph.from_csv(other, delimiter=";").num_edges == 1


MASKS = {
    "result": lambda mask: mask,
    "array": np.asarray,
    "list": lambda mask: np.asarray(mask).tolist(),
    "nullable": lambda mask: pd.array(np.asarray(mask), "boolean"),
    "polars": lambda mask: pytest.importorskip("polars").Series(np.asarray(mask)),
}


@pytest.mark.parametrize("form", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("keys", [True, False])
def test_masks_in_place_of_vertices(named, form, keys):
    with DynamicGraph.from_pandas(pd.DataFrame({"source": [0, 1], "target": [1, 2]})) as numbered:
        graph = named if keys else numbered
        ranks = graph.pagerank()
        mask = form(ranks > 0.25)
        calls = (graph.subgraph, graph.neighbors, graph.degrees, graph.multi_source_bfs, ranks.__getitem__)
        for call in calls:
            with pytest.raises((InvalidBatch, InvalidOption), match=r"a mask of \d values; vertices\(\)\[mask\]"):
                call(mask)
        chosen = graph.vertices()[np.asarray(mask, bool)]
        assert set(graph.subgraph(chosen)) == {v for v, rank in ranks.items() if rank > 0.25}


def test_several_vertices_in_place_of_one(named):
    several = "it must be one vertex; multi_source_bfs and distances take several"
    for call in (named.bfs, named.sssp):
        for sources in (["ada", "b"], np.array(["ada", "b"])):
            with pytest.raises(InvalidOption, match=f"source is a (list|ndarray); {several}"):
                call(sources)
    with pytest.raises(InvalidOption, match="target is a list; it must be one vertex$"):
        named.shortest_path("ada", ["b"])
    with DynamicGraph(n_vertices=3) as graph, pytest.raises(InvalidOption, match=several):
        graph.bfs([0, 1])


@pytest.mark.parametrize("vertices", [[["ada"], ["b", "c"]], pd.array([1, None], dtype="Int64"), [["ada"] * 5]])
def test_what_is_no_list_of_vertices(named, vertices):
    components = named.connected_components()
    for call in (lambda: components[vertices], lambda: components == vertices, lambda: named.bfs(vertices)):
        with pytest.raises((InvalidBatch, InvalidOption)):
            call()


def test_one_vertex_in_place_of_several(named):
    for call in (named.neighbors, named.degrees):
        with pytest.raises(InvalidBatch, match=r"ids is 'ada', one value; keys come in a list, as \['ada'\]"):
            call("ada")
    with DynamicGraph(n_vertices=3) as graph, pytest.raises(InvalidBatch, match=r"is 1, one value; .* as \[1\]"):
        graph.degrees(np.int64(1))


def test_pairs_in_place_of_vertices(named):
    with pytest.raises(InvalidBatch, match=r"vertices\[0\] is \('b', .*\); .*\[v for v, _ in pairs\]"):
        named.subgraph(named.pagerank().top(2))


def test_names_in_place_of_numbers(named):
    with pytest.raises(InvalidOption, match=r"personalization\[0\] is 'ada'; .* a mapping, as \{'ada': 1\}, names"):
        named.pagerank(personalization=["ada"])
    labels = ["x", "x", "y", "x", "y"]
    with pytest.raises(InvalidOption, match=r"labels\[0\] is .x.; .*; pandas.factorize numbers other labels"):
        named.modularity(labels)
    assert -0.5 <= named.modularity(pd.factorize(pd.Series(labels))[0]) <= 1
    with pytest.raises(InvalidOption, match=r"top\(3\) needs numbers.*; value_counts\(\) counts the vertices of each"):
        named.louvain().top(3)
    with pytest.raises(AttributeError, match="did you mean 'top'"):
        named.pagerank().idxmax  # noqa: B018


def test_two_lists_in_place_of_pairs():
    with DynamicGraph(n_vertices=6) as graph:
        for call in (graph.insert, graph.delete):
            with pytest.raises(InvalidBatch, match=r"src is a tuple of 2 lists.* write insert\(src, dst\) for columns"):
                call(([0, 5], [1, 2]))
        assert graph.epoch == 0
        assert graph.insert(((0, 5), (1, 2))).inserted == graph.delete([[0, 5], [1, 2]]).deleted == 2


@pytest.mark.parametrize("flag", ["yes", [1], 2, None])
def test_flags_are_true_or_false(flag):
    with DynamicGraph(n_vertices=3, directed=False, weighted=True, times=True) as graph:
        for name, call in (
            ("predecessors", lambda: graph.bfs(0, predecessors=flag)),
            ("predecessors", lambda: graph.sssp(0, predecessors=flag)),
            ("predecessors", lambda: graph.maintain("bfs", source=0, predecessors=flag)),
            ("normalized", lambda: graph.betweenness_centrality(normalized=flag)),
            ("normalized", lambda: graph.katz_centrality(normalized=flag)),
            ("normalized", lambda: graph.hits(normalized=flag)),
            ("time", lambda: graph.neighbors([0], time=flag)),
        ):
            with pytest.raises(InvalidOption, match=rf"{name} is {re.escape(repr(flag))}; it must be True or False"):
                call()
        if flag is not None:  # as in NetworkX, for no weights
            for call in (
                graph.pagerank, graph.hits, graph.katz_centrality, graph.eigenvector_centrality,
                lambda weight: graph.shortest_path(0, 0, weight),
            ):  # fmt: skip
                with pytest.raises(
                    InvalidOption, match=rf"weight is {re.escape(repr(flag))}; it must be True or False"
                ):
                    call(weight=flag)


def test_a_pipeline_says_how_to_insert():
    with (
        DynamicGraph(n_vertices=2) as graph,
        pytest.raises(AttributeError, match=r"a pipeline has no 'insert'; update sends batches, such as EdgeBatch"),
        graph.pipeline() as pipeline,
    ):
        pipeline.insert([0], [1])


def test_columns_of_dask_and_paths_in_place_of_edges():
    columns = dd.from_pandas(pd.DataFrame({"source": [0], "target": [1]}), npartitions=1)
    with DynamicGraph(n_vertices=2) as graph:
        with pytest.raises(InvalidBatch, match="src is a Series of Dask; ingest takes it"):
            graph.insert(columns.source, columns.target)
        with pytest.raises(TypeError, match="got str; read, stream and ingest take files"):
            graph.insert("edges.csv")


def test_columns_after_a_table():
    with (
        DynamicGraph() as graph,
        pytest.raises(InvalidBatch, match="src is a table and dst is 'from'; source= and"),
    ):
        graph.insert(pd.DataFrame({"from": [1], "to": [2]}), "from", "to")


@pytest.mark.parametrize("weighted", [True, False])
def test_a_deletion_does_not_speak_of_weights_and_times(weighted):
    frame = pd.DataFrame({"source": [0], "target": [1], "weight": [2.0], "time": [5]})
    with DynamicGraph(n_vertices=2, weighted=weighted, times=True) as graph, warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.insert(frame if weighted else frame.drop(columns="weight"))
        assert graph.delete(frame).deleted == 1
        with pytest.raises(UserWarning, match="column 'op' of the table was not used"):
            graph.delete(frame.assign(op=1))


def test_text_and_dates_say_how_to_take_them():
    frame = pd.DataFrame({"source": [0], "target": [1], "amount": ["1.5"], "day": pd.to_datetime(["2024-01-01"])})
    with pytest.raises(InvalidBatch, match=r"column 'amount', row 0 is '1.5'; weights are numbers: pandas.to_numeric"):
        DynamicGraph.from_pandas(frame, weight="amount")
    dtype = frame.day.dtype.name
    with pytest.raises(InvalidBatch, match=re.escape(f"with times={dtype!r}")):
        DynamicGraph.from_pandas(frame, time="day", times=True)
    with DynamicGraph.from_pandas(frame, time="day", times=dtype) as graph:
        assert graph.times == dtype
    series = frame.set_index(["source", "target"]).day
    with pytest.raises(InvalidBatch, match=r"got pandas.Series; reset_index\(\) makes one of it"):
        DynamicGraph.from_pandas(series)
    assert DynamicGraph.from_pandas(series.reset_index()).num_edges == 1


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("head", "to_pandas"), ("predecessors", "neighbors"), ("components", "connected_components"),
        ("get_edge_data", "weights"), ("num_nodes", "num_vertices"), ("nbunch_iter", "to_networkx"),
        ("remove_edges", "delete"), ("out_degree", "degrees"), ("in_degree", "degrees"),
        ("insert_edges", "insert"), ("update_edges", "update"), ("bfs_edges", "bfs"),
        ("to_parquet", "to_pandas"), ("restore", "open"), ("n_nodes", "num_vertices"), ("stop", "close"),
        ("shape", None), ("info", None), ("flush", None),
    ],
)  # fmt: skip
def test_unknown_attributes_are_guessed_only_if_close(name, meant):
    with DynamicGraph() as graph, pytest.raises(AttributeError) as raised:
        getattr(graph, name)
    assert str(raised.value) == f"a DynamicGraph has no {name!r}" + (f"; did you mean {meant!r}?" if meant else "")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([0, True, 2], r"\[1\] is True; it must be a number"),
        (["0", "1", "2"], r"\[0\] is '0'; it must be a number"),
        (pd.Series(["0", "1", "2"]), r"\[0\] is '0'; it must be a number"),
        (np.array([0, 1, 2], "m8[s]"), r"\[0\] is 0 seconds; it must be a number"),
        ([0, 1j, 2], r"\[0\] is 0j; it must be a number"),
        ([0, 10**400, 2], r"\[1\] is 10*; it must be a number in the range of float64"),
        (np.ma.array([0, 1, 2], mask=[0, 1, 0]), r"\[1\] is masked; every entry needs a value"),
        (pd.array([0, None, 2], dtype="Int64"), r"\[1\] is missing; every entry needs a value"),
    ],
)
def test_numbers_of_vertices_are_numbers(entries, message):
    """Wherever a number per vertex is taken."""
    with DynamicGraph(n_vertices=3, directed=False, weighted=True) as graph:
        graph.insert([0, 1], [1, 2])
        ranks = graph.pagerank()
        for name, call in (
            ("order", lambda: DynamicGraph(n_vertices=3, order=entries)),
            ("balance", lambda: DynamicGraph(n_vertices=3, balance=entries)),
            ("labels", lambda: graph.modularity(entries)),
            ("personalization", lambda: graph.pagerank(personalization=entries)),
            ("dangling", lambda: graph.pagerank(dangling=entries)),
            ("nstart", lambda: graph.pagerank(nstart=entries)),
            ("nstart", lambda: graph.hits(nstart=entries)),
            ("beta", lambda: graph.katz_centrality(beta=entries)),
            ("values", lambda: graph.gather(entries)),
            ("an operand", lambda: ranks * entries),
        ):
            with pytest.raises(InvalidOption, match=rf"^{name}{message}"):
                call()
        with pytest.raises(InvalidOption, match=r"personalization\[1\]"):
            graph.pagerank(personalization=[[0, 1, 2], entries])
        mask = np.array([True, False, True])
        assert graph.modularity(mask) == graph.modularity([1, 0, 1])
        assert list(graph.pagerank(personalization=mask)) == list(graph.pagerank(personalization=[1, 0, 1]))


@pytest.mark.parametrize("vertices", [[1], (1, 0), np.array([1])])
def test_vertices_in_place_of_numbers(vertices):
    """They are the numbers of the first vertices, and so of others than are meant."""
    why = r"{} gives whole numbers to the first . of 3 vertices, .* as \{{1: 1\}}, names vertices"
    with DynamicGraph(n_vertices=3) as graph:
        graph.insert([0, 1], [1, 2])
        for name, given in (("personalization", vertices), ("dangling", vertices)):
            with pytest.warns(UserWarning, match=why.format(name)) as warned:
                graph.pagerank(**{name: given})
            assert warned[0].filename == __file__
        with pytest.warns(UserWarning, match=why.format(r"personalization\[1\]")):
            graph.pagerank(personalization=[{0: 1}, vertices])
        graph.pagerank(personalization=[1.0])  # no vertex


@pytest.mark.parametrize("fanouts", [[True], [2, False]])
def test_fanouts_are_numbers(named, fanouts):
    with pytest.raises(InvalidOption, match=r"fanouts\[\d\] is (True|False); it must be 0 or more"):
        named.sample_neighbors(["ada"], fanouts)
    assert named.sample_neighbors(["ada"], iter([2])).node.tolist() == ["ada", "b"]


@pytest.mark.parametrize(
    ("package", "call", "message"),
    [
        ("pandas", lambda g: g.to_pandas(), r"to_pandas\(\) needs pandas: pip install pandas"),
        ("pandas", lambda g: g.pagerank().to_pandas(), r"to_pandas\(\) needs pandas: pip install pandas"),
        ("pandas", lambda g: g.pagerank().to_series(), "needs pandas: pip install pandas"),
        ("pandas", lambda g: g.pagerank().value_counts(), "needs pandas: pip install pandas"),
        ("pandas", lambda g: g.multi_source_bfs(["ada"]).to_pandas(), "needs pandas: pip install pandas"),
        ("pandas", lambda g: g.connected_components().sizes(), r"sizes\(\) needs pandas: pip install pandas"),
        ("pandas", lambda g: g.changes(0), r"changes\(\) needs pandas: pip install pandas"),
        ("pyarrow", lambda g: g.to_arrow(), r"to_arrow\(\) needs pyarrow: pip install pyarrow"),
        ("pyarrow", lambda g: g.pagerank().to_arrow(), "needs pyarrow: pip install pyarrow"),
        ("polars", lambda g: g.to_polars(), r"to_polars\(\) needs polars: pip install polars"),
        ("scipy.sparse", lambda g: g.to_scipy(), r"to_scipy\(\) needs scipy: pip install scipy"),
        ("networkx", lambda g: g.to_networkx(), r'needs networkx: pip install "dask-mgraph\[networkx\]"'),
        ("matplotlib.pyplot", lambda g: g.plot(), r'needs matplotlib: pip install "dask-mgraph\[plot\]"'),
        ("torch", lambda g: g.to_pyg(), r"to_pyg\(\) needs torch: pip install torch"),
        ("dask.dataframe", lambda g: g.pagerank().to_dask(), r'needs dask: pip install "dask-mgraph\[cluster\]"'),
    ],
)
def test_what_a_converter_needs(named, monkeypatch, package, call, message):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MgraphError, match=message):
        call(named)


def test_a_package_that_is_broken_is_not_called_missing(monkeypatch):
    def broken(name):
        raise ImportError("libfoo.so.3: cannot open shared object file")

    monkeypatch.setattr(facade, "import_module", broken)
    with pytest.raises(MgraphError, match=r"to_scipy\(\) needs scipy.sparse, which cannot be imported: libfoo.so.3"):
        facade.needed("scipy.sparse", "to_scipy()")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("predecessors", "bfs and sssp keep them with predecessors=True"), ("parents", "bfs and sssp"),
        ("path", r"shortest_path\(source, target\) of the graph"), ("n_iter", "did you mean 'iterations'"),
        ("compute", "did you mean 'to_numpy'"),
        ("loc", r"to_series\(\) has it"), ("median", r"to_series\(\) has it"), ("nlargest", "did you mean 'top'"),
    ],
)  # fmt: skip
def test_a_result_says_where_its_missing_names_are(named, name, words):
    result = named.bfs("ada") if name != "n_iter" else named.pagerank()
    with pytest.raises(AttributeError, match=f"has no '{name}'; it has .*; {words}"):
        getattr(result, name)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda f: DynamicGraph.from_pandas(f, weights="w"), "from_pandas .* 'weights'; did you mean 'weight'"),
        (lambda f: DynamicGraph.from_pandas(f, edge_attr="w"), "from_pandas .* 'edge_attr'; did you mean 'weight'"),
        (lambda f: DynamicGraph.from_pandas(f, destination="d"), "from_pandas .*; did you mean 'target'"),
        (lambda f: DynamicGraph.from_pandas(f, directd=True), "from_pandas .*; did you mean 'directed'"),
        (lambda f: DynamicGraph(weights=True), "DynamicGraph .* 'weights'; did you mean 'weighted'"),
        (lambda f: DynamicGraph(n_vertices=1).bfs(0, depth_limit=2), "k_hop finds the vertices within k edges"),
        (lambda f: DynamicGraph().louvain(random_state=2), "did you mean 'seed'"),
    ],
)
def test_arguments_of_other_libraries(call, words):
    with pytest.raises(TypeError, match=words):
        call(pd.DataFrame({"source": [0], "target": [1], "w": [2.0]}))


def test_functions_of_networkx_take_a_conversion(named):
    for call in (nx.pagerank, nx.degree, nx.number_of_nodes, lambda g: nx.shortest_path(g, "ada", "b")):
        with pytest.raises(AttributeError, match=r"a function of NetworkX takes to_networkx\(\)"):
            call(named)
    assert nx.number_of_nodes(named.to_networkx()) == 5


def test_what_is_no_name_no_file_and_no_client(named):
    for call in (named.maintain, named.run):
        with pytest.raises(InvalidOption, match="did you mean 'connected_components'"):
            call(named.connected_components)
    with named.maintain("connected_components") as live:
        with pytest.raises(AttributeError, match=r"no 'top'; result\(\) returns the current values"):
            live.top(3)
        assert live.result().components == 2
    with pytest.raises(TypeError, match="a file's path is a str or a Path, got list; stream and ingest take lists"):
        DynamicGraph.read(["a.csv", "b.csv"])
    with pytest.raises(TypeError, match=r"got list; insert of a new DynamicGraph\(\) takes edges"):
        DynamicGraph([(0, 1)])
    with pytest.raises(TypeError, match=r"got str; write Client\('tcp://127.0.0.1:8786'\)"):
        DynamicGraph("tcp://127.0.0.1:8786")
    for folder in ("data/roads", Path("data/roads")):
        with pytest.raises(TypeError, match=r"DynamicGraph.open\('data/roads'\) opens a store"):
            DynamicGraph(folder)
    with pytest.raises(TypeError, match=r"; write Client\(cluster\)"):
        DynamicGraph(SimpleNamespace(scheduler_address="tcp://127.0.0.1:8786"))
    with pytest.raises(TypeError, match="no argument 'create_using'; did you mean 'directed'"):
        DynamicGraph(create_using=None)
    with pytest.raises(InvalidBatch, match="src has type list and 2 dimensions; keys must be in"):
        named.has_edge(["ada"], "b")
