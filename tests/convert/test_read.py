"""Files of each format that `DynamicGraph.read` finds out: the graph has what was written; bad files are named."""

from __future__ import annotations

import io
import os
from pathlib import Path
from unittest.mock import patch

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mgraph import DynamicGraph, InvalidOption, ReadError, UnknownVertex

some = settings(
    max_examples=8,
    deadline=None,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

IDS = st.integers(0, 12)
COMPRESSED = st.sampled_from(["", ".gz", ".bz2", ".zst", ".lz4"])
EDGES = st.dictionaries(st.tuples(IDS, IDS), st.floats(0, 100, width=16), min_size=1, max_size=30)
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


def write(path: Path, text: str | bytes) -> Path:
    """A file with this text, compressed as its suffix says."""
    data = text.encode() if isinstance(text, str) else text
    codec = CODECS.get(path.suffix)
    with pa.output_stream(str(path), compression=codec) as stream:
        stream.write(data)
    return path


def once(edges: dict) -> dict:
    """Each edge of a graph without directions, with the lesser end first."""
    return {(min(pair), max(pair)): w for pair, w in edges.items()}


def found(graph: DynamicGraph) -> dict:
    """The edges of a graph, which is closed."""
    with graph:
        frame = graph.to_pandas()
        weights = frame["weight"] if graph.weighted else [1.0] * len(frame)
        edges = dict(zip(zip(frame["source"], frame["target"], strict=True), weights, strict=True))
        return edges if graph.directed else once(edges)


def ones(edges: dict) -> dict:
    return dict.fromkeys(edges, 1.0)


@some
@given(EDGES, COMPRESSED, st.sampled_from([" ", "\t", "  ", " \t ", ",", ", "]), st.sampled_from(["\n", "\r\n", " \n"]))
def test_edge_lists(tmp_path, edges, compressed, blank, end):
    if "," in blank and end == " \n":
        end = "\n"
    lines = ["# a comment", "% another, with a comma"]
    for i, ((u, v), w) in enumerate(edges.items()):
        lines += [f"{u}{blank}{v}{blank}{w}", "  # in between"][: 1 + (i % 3 == 0)]
    path = write(tmp_path / f"edges.txt{compressed}", end.join(lines) + end)
    assert found(DynamicGraph.read(path)) == ones(edges)
    assert found(DynamicGraph.read(str(path), weight=2)) == edges
    assert found(DynamicGraph.read(path, 1, 0, directed=False)) == ones(once(edges))
    named = write(tmp_path / f"named.txt{compressed}", end.join(["from to km".replace(" ", blank), *lines]) + end)
    assert found(DynamicGraph.read(named, "from", "to", "km")) == edges


@some
@given(EDGES, COMPRESSED)
def test_separated_values(tmp_path, edges, compressed):
    for suffix, by in ((".csv", ","), (".tsv", "\t")):
        rows = [by.join(map(str, (u, v, w))) for (u, v), w in edges.items()]
        path = write(tmp_path / f"edges{suffix}{compressed}", "\n".join([by.join(["source", "target", "w"]), *rows]))
        assert found(DynamicGraph.read(path, weight="w")) == edges
        bare = write(tmp_path / f"bare{suffix}{compressed}", "\n".join(rows))
        assert found(DynamicGraph.read(bare, 0, 1, 2)) == edges


@some
@given(EDGES, COMPRESSED)
def test_matrix_market(tmp_path, edges, compressed):
    ends, data = np.array([*edges]).T, np.array([*edges.values()])
    matrix = sp.coo_array((data, (ends[0], ends[1])), shape=(14, 14))
    for field, want in (("real", edges), ("pattern", ones(edges))):
        scipy.io.mmwrite(text := io.BytesIO(), matrix, field=field, symmetry="general")
        path = write(tmp_path / f"a.mtx{compressed}", text.getvalue())
        graph = DynamicGraph.read(path)
        assert (graph.num_vertices, graph.directed, graph.weighted) == (14, True, field == "real")
        assert found(graph) == want
        assert found(DynamicGraph.read(path, weighted=False)) == ones(edges)
    both = sp.coo_array(matrix.maximum(matrix.T))
    scipy.io.mmwrite(text := io.BytesIO(), both, symmetry="symmetric")
    path = write(tmp_path / f"nameless{compressed}", text.getvalue())  # known by its first line
    want = dict(zip(zip(both.row.tolist(), both.col.tolist(), strict=True), both.data.tolist(), strict=True))
    for options in ({}, {"combine": "sum"}):
        graph = DynamicGraph.read(path, **options)
        assert not graph.directed
        assert found(graph) == once(want)
    assert found(DynamicGraph.read(path, directed=True)) == want


@some
@given(EDGES, COMPRESSED, st.sampled_from(["", "0", "1", "001", "10", "11", "011", "111"]), st.integers(1, 3))
def test_metis(tmp_path, edges, compressed, form, constraints):
    n, edges = 14, once({(u, v): int(w) + 1 for (u, v), w in edges.items() if u != v})
    sizes, vertices, weighted = (digit == "1" for digit in f"{form or '0':0>3}")
    head = f"{n} {len(edges)} {form}{f' {constraints}' if vertices and form else ''}"
    lines = ["% a comment", head.strip()]
    for u in range(n):
        words = [7] * (sizes + constraints * vertices)
        for v, w in [(v, edges[min(u, v), max(u, v)]) for v in range(n) if (min(u, v), max(u, v)) in edges]:
            words += [v + 1, w] if weighted else [v + 1]
        lines += ["% in between"] * (u == 3) + [" ".join(map(str, words))]
    path = write(tmp_path / f"a.graph{compressed}", "\n".join(lines) + "\n")
    graph = DynamicGraph.read(path)
    assert (graph.num_vertices, graph.directed, graph.weighted) == (n, False, weighted)
    assert found(graph) == (edges if weighted else ones(edges))
    both = edges | {(v, u): w for (u, v), w in edges.items()}
    assert found(DynamicGraph.read(path, directed=True, weighted=False)) == ones(both)


@some
@given(EDGES, COMPRESSED, st.booleans())
def test_graphml(tmp_path, edges, compressed, directed):
    made = nx.DiGraph() if directed else nx.Graph()
    made.add_node(20)
    made.add_weighted_edges_from((u, v, w) for (u, v), w in edges.items())
    nx.write_graphml(made, text := io.BytesIO())
    path = write(tmp_path / f"a.xml{compressed}", text.getvalue())
    want = {(str(u), str(v)): w for u, v, w in made.edges(data="weight")}
    graph = DynamicGraph.read(path, weight="weight")
    assert (graph.keys, graph.num_vertices, graph.directed) == ("string", made.number_of_nodes(), directed)
    assert found(graph) == (want if directed else once(want))
    with DynamicGraph.read(path, n_vertices=30, weighted=False) as numbered:
        assert (numbered.num_vertices, numbered.num_edges) == (30, len(want))


@some
@given(EDGES, COMPRESSED, st.booleans(), st.booleans())
def test_evlp(tmp_path, edges, compressed, directed, weighted):
    ids = np.arange(14) * 500 + 7  # sparse
    edges = {(u, v): w for (u, v), w in (edges if directed else once(edges)).items() if u != v}
    rows = [f"{ids[u]} {ids[v]}{f' {w}' if weighted else ''}" for (u, v), w in edges.items()]
    write(tmp_path / f"a.v{compressed}", "".join(f"{i}\n" for i in ids))
    write(tmp_path / f"a.e{compressed}", "".join(f"{row}\n" for row in rows))
    own = [f"directed = {str(directed).lower()}", f"vertex-file = a.v{compressed}", f"edge-file = a.e{compressed}"]
    own += ["edge-properties.names = weight", "edge-properties.types = real"] if weighted else []
    write(tmp_path / "a.properties", "# of a\n" + "".join(f"graph.a.{line}\n" for line in own))
    want = {(int(ids[u]), int(ids[v])): w if weighted else 1.0 for (u, v), w in edges.items()}
    for name in ("a.properties", f"a.e{compressed}", f"a.v{compressed}"):
        graph = DynamicGraph.read(tmp_path / name)
        assert (graph.keys, graph.num_vertices, graph.directed, graph.weighted) == ("int64", 14, directed, weighted)
        assert found(graph) == (want if directed else once(want))
    numbered = DynamicGraph.read(tmp_path / "a.properties", keys=None, weighted=False)
    assert (numbered.keys, numbered.num_vertices, numbered.weighted) == (None, int(ids[-1]) + 1, False)
    assert found(numbered) == ones(want if directed else once(want))
    for path in tmp_path.iterdir():
        path.unlink()


def test_strings_and_parquet(tmp_path):
    (tmp_path / "names.csv").write_text('source,target,w\n"",NA,1\nnull,"NA",nope\n')
    for keys in ("auto", "string"):
        with DynamicGraph.read(os.fsencode(tmp_path / "names.csv"), keys=keys) as graph:
            assert graph.vertices().tolist() == ["", "null", "NA"]
        (tmp_path / "cell.csv").write_text("source,target\n,b\n")
        with DynamicGraph.read(tmp_path / "cell.csv", keys="string") as graph:
            assert graph.vertices().tolist() == ["", "b"]
        with pytest.raises(ReadError, match="column 'w', row 1 is 'nope'; weights are numbers"):
            DynamicGraph.read(tmp_path / "names.csv", weight="w", keys=keys)
    path = write(tmp_path / "a.txt", "# people\nada grace\n007 ada\n")
    assert found(DynamicGraph.read(path)) == {("ada", "grace"): 1.0, ("007", "ada"): 1.0}
    numbers = write(tmp_path / "b.txt", "007 8\n")
    assert found(DynamicGraph.read(numbers, keys="string")) == {("007", "8"): 1.0}
    import pyarrow.parquet as parquet

    parquet.write_table(pa.table({"source": [0], "target": [1]}), tmp_path / "nameless")
    assert found(DynamicGraph.read(tmp_path / "nameless")) == {(0, 1): 1.0}


def test_a_path_in_the_users_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "a.csv", "source,target\n0,1\n")
    assert found(DynamicGraph.read("~/a.csv")) == found(DynamicGraph.from_csv("~/a.csv")) == {(0, 1): 1.0}


BAD = [
    ("none.txt", None, "there is no such file"),
    ("", None, "it is a folder; DynamicGraph.open and load take those of"),
    ("empty.txt", "# nothing\n", "0 edges, so the number of vertices is not known"),
    ("ragged.txt", "0 1\n1 2 3\n", "Expected 2 columns, got 3"),
    ("alone.txt", "0\n1\n", "the file has no column '1'; its columns are '0'"),
    ("missing.csv", "source,target\n0,1\n,2\n", "column 'source', row 1 is missing"),
    ("broken.txt.gz", b"0 1\n", "its name says that it is compressed by gzip, and its contents are not"),
    ("broken.txt.zst", b"0 1\n", "compressed by Zstandard, and its contents are not"),
    ("a.npz", b"PK\x03\x04....", "File is not a zip file"),
    ("dense.mtx", "%%MatrixMarket matrix array real general\n1 1\n1.0\n", "the matrix is dense"),
    ("wide.mtx", "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 3 1.0\n", r"shape \(2, 3\)"),
    (
        "past.mtx",
        "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 3 1.0\n",
        "entry 1 has the column 3; there are 1 to 2",
    ),
    ("nan.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 nan\n", "column 'data', row 0 is missing"),
    ("few.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 1\n", "announces 2 rows, and 1 follow"),
    ("head.graph", "% c\nvertices 3\n", "line 2 is 'vertices 3'; it must have the numbers of vertices and edges"),
    ("none.graph", "", "line 1 is ''"),
    ("lines.graph", "3 1\n2\n1\n", "announces 3 vertices, and 2 lines follow"),
    ("past.graph", "2 1\n2\n3\n", "line 3 names neighbour 3; there are 1 to 2"),
    ("zero.graph", "2 1\n0\n1\n", "line 2 names neighbour 0"),
    ("text.graph", "2 1\n2\nx\n", "line 3 has 'x', which is no number"),
    ("oneway.graph", "2 1\n2\n\n", "line 2 names neighbour 2, and the line of 2 does not name 1"),
    ("count.graph", "2 2\n2\n1\n", "announces 2 edges, and there are 1"),
    ("odd.graph", "2 1 1\n2\n1 5\n", "line 2 has a neighbour without a weight"),
    ("weight.graph", "2 1 1\n2 5\n1 6\n", "line 2 gives neighbour 2 another weight than the line of 2 gives 1"),
    ("names.csv", 'source,target\n"",b\na,\n', "column 'target', row 1 is missing"),
    ("a.graphml", "<graphml><graph", "unclosed token"),
    ("b.graphml", "<?xml version='1.0'?><html></html>", "it is a page of HTML"),
    ("a.properties", "graph.a.directed = true\n", "there is no file of edges beside it"),
    ("b.properties", "graph.a.directed = true\ngraph.b.directed = true\n", "properties of several graphs: a, b"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD, ids=[name for name, *_ in BAD])
def test_bad_files(tmp_path, name, text, message):
    if text is not None:
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    no_graph = patch("mgraph.local.Here.begin", side_effect=AssertionError("a graph was made"))
    with no_graph, pytest.raises(ReadError, match=message) as raised:
        DynamicGraph.read(tmp_path / name)
    assert str(raised.value).startswith(f"{tmp_path / name}: ")


def test_vertices_that_are_not_listed(tmp_path):
    write(tmp_path / "a.v", "1\n2\n")
    write(tmp_path / "a.e", "1 2\n2 3\n")
    with pytest.raises(ReadError, match="column '1', row 1 is 3, which is not in the file of vertices"):
        DynamicGraph.read(tmp_path / "a.e")
    write(tmp_path / "b.e", "1 2 3.5\n")
    write(tmp_path / "b.properties", "graph.b.edge-properties.names = km, h\n")
    with pytest.raises(ReadError, match="no property 'w'; they have 'km', 'h'"):
        DynamicGraph.read(tmp_path / "b.e", weight="w")


def test_options_that_do_not_fit_a_format(tmp_path):
    metis = write(tmp_path / "a.graph", "2 1\n2\n1\n")
    matrix = write(tmp_path / "a.mtx", "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n")
    edges = write(tmp_path / "a.txt", "0 9\n")
    for path in (metis, matrix):
        with pytest.raises(InvalidOption, match="weight is 'w'; a file of the format"):
            DynamicGraph.read(path, weight="w")
        with pytest.raises(UnknownVertex, match="n_vertices is 1"):
            DynamicGraph.read(path, n_vertices=1)
        with pytest.raises(InvalidOption, match="leave out n_vertices"):
            DynamicGraph.read(path, keys="string")
    with pytest.raises(ReadError, match="either all are names, or all are numbers"):
        DynamicGraph.read(edges, "from", 1)
    with pytest.raises(UnknownVertex, match="column '1', row 0 is 9; the graph has 5 vertices"):
        DynamicGraph.read(edges, n_vertices=5)
    with pytest.raises(InvalidOption, match="keys 'names' is none of"):
        DynamicGraph.read(edges, keys="names")


GRAPHML = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="edge" attr.name="weight" attr.type="double"><default>2.5</default></key>
<graph edgedefault="directed"><node id="a"/><node id="b"/><node id="c"/>
<edge source="a" target="b"><data key="d0">3</data></edge><edge source="b" target="c"/></graph></graphml>"""


@pytest.mark.parametrize(
    ("name", "text", "weights"),
    [
        ("a.graphml", GRAPHML, [3.0, 2.5]),
        ("a.csv", "source,target,weight\na,b,3\nb,c,2.5\n", [3.0, 2.5]),
        ("names.txt", "source target weight\na b 3\nb c 2.5\n", [3.0, 2.5]),
        ("tabs.txt", "# c\nsource\ttarget\tweight\na\tb\t3\nb\tc\t2.5\n", [3.0, 2.5]),
        ("a.txt", "a b 3\nb c 2.5\n", None),
    ],
    ids=lambda value: value if str(value).count(".") == 1 else "",
)
def test_weights_of_a_file_are_read_or_named(tmp_path, name, text, weights):
    """A weighted graph has the weights of a file that names them; where they are not read, a warning says so."""
    (path := tmp_path / name).write_text(text)
    if weights is None:  # columns without names
        with pytest.warns(UserWarning, match="all weights are 1: the file has 3 columns, and weight=2 would"):
            DynamicGraph.read(path, weighted=True).close()
        with DynamicGraph.read(path, weight=2) as graph:
            assert graph.to_pandas()["weight"].tolist() == [3.0, 2.5]
        DynamicGraph.read(path).close()
        return
    with DynamicGraph.read(path, weighted=True) as graph:
        assert graph.to_pandas()["weight"].tolist() == weights
    with pytest.warns(UserWarning, match="column 'weight' of the file was not used"), DynamicGraph.read(path) as graph:
        assert not graph.weighted
    with DynamicGraph.read(path, weighted=False) as graph:
        assert not graph.weighted


def test_weights_of_a_graph_or_a_matrix_are_read_or_named():
    G = nx.DiGraph()
    G.add_weighted_edges_from([(0, 1, 3.0), (1, 2, 2.5)])
    with DynamicGraph.from_networkx(G, weighted=True) as graph:
        assert graph.to_pandas()["weight"].tolist() == [3.0, 2.5]
    with pytest.warns(UserWarning, match="attribute 'weight' of the graph .* names the attribute"):
        DynamicGraph.from_networkx(G).close()
    DynamicGraph.from_networkx(G, weighted=False).close()
    matrix = nx.to_scipy_sparse_array(G)
    with pytest.warns(UserWarning, match="entries of the matrix were not used; weighted=True"):
        DynamicGraph.from_scipy(matrix).close()
    for silent in ({"weighted": False}, {"weighted": True}):
        DynamicGraph.from_scipy(matrix, **silent).close()
    DynamicGraph.from_scipy(matrix != 0).close()


def test_graphml_with_weights_of_two_types(tmp_path):
    """NetworkX writes a key of the same name for each type of values."""
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("x", "y", 1.5), ("y", "z", 2), ("z", "x", 3)])
    nx.write_graphml(graph, tmp_path / "a.graphml")
    assert (tmp_path / "a.graphml").read_text().count('attr.name="weight"') == 2
    with DynamicGraph.read(tmp_path / "a.graphml", weight="weight") as made:
        assert made.to_pandas().values.tolist() == [["x", "y", 1.5], ["y", "z", 2.0], ["z", "x", 3.0]]


def test_networkx_numbers_with_gaps_are_keys():
    """A NetworkX graph says which nodes it has; ids up to the largest would be others."""
    graph = nx.karate_club_graph().subgraph(range(20, 34))
    for nodes in (graph, nx.convert_node_labels_to_integers(nx.path_graph(4), first_label=1)):
        with DynamicGraph.from_networkx(nodes, weighted=False) as made:
            assert (made.keys, made.num_vertices) == ("int64", len(nodes))
            assert made.connected_components().components == nx.number_connected_components(nodes)
            assert set(made.to_networkx().nodes) == set(nodes)
    with DynamicGraph.from_networkx(nx.path_graph(4)) as made:
        assert made.keys is None
