"""What a file is, by its contents: read, or refused by the name of its format."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mgraph import DynamicGraph, InvalidOption, ReadError, UnknownVertex

REFUSED = {
    "JSON": ('{"nodes": [{"id": 1}], "links": []}', '[{"source": 0, "target": 1}]', "[[0, 1], [1, 2]]"),
    "HTML": ("<!DOCTYPE html>\n<html><body>404</body></html>", "<html>\n", "<?xml version='1.0'?><html></html>"),
    "GML": ("graph [\n  node [ id 0 ]\n]\n", 'Creator "igraph"\nVersion 1\ngraph\n[\n]\n'),
    "GEXF": ('<?xml version="1.0"?>\n<gexf version="1.3"><graph/></gexf>',),
    "XML": ('<?xml version="1.0"?><rss></rss>', "<svg ></svg>"),
    "DGS": ("DGS004\nnull 0 0\nan A\n",),
    "Pajek": ("*Vertices 2\n1 a\n2 b\n*Edges\n1 2\n",),
    "DOT": ("digraph g {\n a -> b;\n}\n", "graph {\n a -- b;\n}\n", "strict graph {a}"),
    "PACE": ("c a\np tw 3 2\n1 2\n", "p td 3 2\n1 2\n"),
    "Arrow's IPC": (b"ARROW1\0\0" + b"\0" * 64,),
    "binary": (b"SQLite format 3\0" + b"\0" * 64, b"%PDF-1.7\n"),
    "archive": (b"7z\xbc\xaf\x27\x1c" + b"\0" * 64,),
}
CASES = [(name, text) for name, texts in REFUSED.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), CASES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(CASES)])
@pytest.mark.parametrize("suffix", [".txt", ".csv", ".xml", ".dgs"])
def test_formats_that_are_refused_by_name(tmp_path, name, text, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(
        ReadError, match=name if suffix != ".csv" or name not in ("JSON", "XML", "Pajek") else "JSON or XML|no column"
    ):
        DynamicGraph.read(path)


def test_names_that_look_like_a_format(tmp_path):
    (tmp_path / "a.txt").write_text("{a} {b}\n<http://x> <http://y>\n")
    with DynamicGraph.read(tmp_path / "a.txt") as graph:
        assert sorted(graph.vertices()) == ["<http://x>", "<http://y>", "{a}", "{b}"]


def test_a_format_under_another_name(tmp_path):
    table = pa.table({"source": [0], "target": [1]})
    pyarrow.parquet.write_table(table, tmp_path / "parquet.csv")
    np.savez(tmp_path / "npz.npz", source=[0], target=[1])
    (tmp_path / "npz.npz").rename(tmp_path / "npz.parquet")
    (tmp_path / "a.xml").write_text(
        '<?xml version="1.0"?>\n<graphml><graph edgedefault="directed"><edge source="0" target="1"/></graph></graphml>'
    )
    (tmp_path / "mtx.txt").write_text("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n")
    for name in ("parquet.csv", "npz.parquet", "a.xml", "mtx.txt"):
        with DynamicGraph.read(tmp_path / name, **({"keys": "int64"} if name == "a.xml" else {})) as graph:
            assert graph.to_pandas()[["source", "target"]].values.tolist() == [[0, 1]]
    with DynamicGraph(n_vertices=2) as graph:
        assert graph.stream(tmp_path / "parquet.csv", progress=False).inserted == 1
        assert graph.ingest(tmp_path / "npz.parquet")[0].updated == 1
        for name in ("a.gr.csv", "text.parquet", "text.npz"):
            (tmp_path / name).write_text("p sp 2 1\na 1 2 3\n" if "gr" in name else "source,target\n0,1\n")
        with pytest.raises(ReadError, match="a file of the format dimacs, which DynamicGraph.read takes"):
            graph.stream(tmp_path / "a.gr.csv", progress=False)
        for name in ("text.parquet", "text.npz"):
            for call in (DynamicGraph.read, graph.stream, graph.ingest):
                with pytest.raises(ReadError, match="and its contents are not"):
                    call(tmp_path / name)


# ---- DIMACS ----------------------------------------------------------------------------------------------------------


def test_dimacs(tmp_path):
    (tmp_path / "a.gr").write_text("c 9th challenge\nc\np sp 4 3\nc arcs\na 1 2 803\na 2 1 803\r\na 4 1 1.5\n")
    with DynamicGraph.read(tmp_path / "a.gr") as graph:
        assert (graph.num_vertices, graph.directed, graph.weighted, graph.num_edges) == (4, True, True, 3)
        assert graph.weights([0, 1, 3], [1, 0, 0]).tolist() == [803, 803, 1.5]
    (tmp_path / "b.col").write_text("p edge 3 2\ne 1 2\ne 3 2\n")
    with DynamicGraph.read(tmp_path / "b.col") as graph:
        assert (graph.num_vertices, graph.directed, graph.weighted, graph.num_edges) == (3, False, False, 2)
    with DynamicGraph.read(tmp_path / "b.col", directed=True) as graph:
        assert graph.num_edges == 4
    with DynamicGraph.read(tmp_path / "a.gr", weighted=False, n_vertices=9) as graph:
        assert (graph.num_vertices, graph.weighted) == (9, False)
    with pytest.raises(UnknownVertex, match="the file has 4 vertices, and n_vertices is 3"):
        DynamicGraph.read(tmp_path / "a.gr", n_vertices=3)
    with pytest.raises(InvalidOption, match="weight is 2; a file of the format dimacs"):
        DynamicGraph.read(tmp_path / "a.gr", weight=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p sp 2 2\na 1 2 3\n", "line 1 announces 2 rows, and 1 follow"),
        ("p sp 2 1\na 1 3 3\n", "edge 1 is from 1 to 3; there are the vertices 1 to 2"),
        ("p sp 2 1\na 1 2\n", "line 2 has 2 numbers; it must have 3"),
        ("c x\np sp 2 1\nb 1 2 3\n", "line 3 begins with 'b'"),
        ("p sp 2 1\na\na 1 2 3\n", "a line after line 1 has 'a' and no numbers"),
        ("p sp 2 1\na 1 2 x\n", "line 2 has 'x', which is no number"),
        ("p sp 2 1\na 1 2 1e999\n", "too large"),
        ("p sp two 1\na 1 2 1\n", "line 1 is 'p sp two 1'"),
        ("p max 2 1\na 1 2 1\n", "line 1 is 'p max 2 1'"),
    ],
)
def test_bad_dimacs(tmp_path, text, message):
    (tmp_path / "a.gr").write_text(text)
    with pytest.raises(ReadError, match=message):
        DynamicGraph.read(tmp_path / "a.gr")


# ---- GraphML ---------------------------------------------------------------------------------------------------------


def graphml(edges: str, keys: str = "", nodes: str = '<node id="a"/><node id="b"/>', default: str = "directed") -> str:
    head = '<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    return f'{head}{keys}<graph edgedefault="{default}">{nodes}{edges}</graph></graphml>'


EDGE = '<edge source="a" target="b"><data key="w">2.5</data><data key="s">3</data></edge>'
WEIGHT = '<key id="w" for="edge" attr.name="weight" attr.type="double"/>'


@pytest.mark.parametrize(
    "text",
    [
        graphml(EDGE, WEIGHT + '<key id="s" for="edge" attr.name="size" attr.type="short"/>'),
        graphml(EDGE, WEIGHT + '<key id="s" for="edge"/>'),
        graphml('<edge source="a" target="b"/>', WEIGHT.replace("/>", "><default>2.5</default></key>")),
    ],
)
def test_attributes_of_graphml(tmp_path, text):
    (tmp_path / "a.graphml").write_text(text)
    with DynamicGraph.read(tmp_path / "a.graphml", weight="weight") as graph:
        assert graph.weights(["a"], ["b"]).tolist() == [2.5]
    with DynamicGraph.read(tmp_path / "a.graphml", weighted=False) as graph:
        assert (graph.num_edges, graph.weighted) == (1, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (graphml(EDGE).replace("?>", ' encoding="martian"?>', 1), "it is no XML that can be read"),
        (graphml('<edge source="a"/>'), "edge 1 has no target"),
        (graphml(EDGE, nodes='<node id="a"><graph edgedefault="directed"/></node>'), "it has 2 graphs"),
        (graphml(EDGE * 2, WEIGHT), "1 parallel edges"),
        (graphml('<edge source="a" target="b" directed="false"/>'), "another direction than the graph"),
        (graphml("<hyperedge/>"), "it has a <hyperedge>"),
        (graphml(EDGE, default="both"), "edgedefault is 'both'"),
        (graphml(EDGE, nodes="<node/>"), "node 1 has no id"),
        (graphml('<edge source="a" target="b"/>', WEIGHT), "has no attribute 'weight'"),
        (graphml(EDGE.replace("2.5", "far"), WEIGHT), "has the attribute 'weight' 'far'"),
        (graphml(EDGE), "the edges have no attribute 'weight'; they have none"),
    ],
)
def test_bad_graphml(tmp_path, text, message):
    (tmp_path / "a.graphml").write_text(text)
    with pytest.raises(ReadError, match=message):
        DynamicGraph.read(tmp_path / "a.graphml", weight="weight")


def test_comments_of_metis_in_any_encoding(tmp_path):
    (tmp_path / "a.graph").write_bytes("% Zürich\n2 1 001\n2 0.5\n1 0.5\n".encode() + b"% \xff\xfe\n")
    with DynamicGraph.read(tmp_path / "a.graph") as graph:
        assert graph.weights([0], [1]).tolist() == [0.5]


@pytest.mark.parametrize("form", ["0001", "2", "12"])
def test_a_format_that_metis_does_not_have_is_named(tmp_path, form):
    path = tmp_path / "a.graph"
    path.write_text(f"2 1 {form}\n2\n1\n")
    with pytest.raises(ReadError, match=f"line 1 has the format '{form}'; it has up to three digits, 0 or 1"):
        DynamicGraph.read(path)
