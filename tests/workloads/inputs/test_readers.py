"""Every format, with and without gzip, and what each says of a file that is not one."""

import builtins
import gzip

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from mgraph.errors import InvalidOption, ReadError
from workloads.inputs.readers import read


@pytest.fixture(params=["plain", "gz"])
def write(request, tmp_path):
    """Writes text to a file of a name, gzipped in half of the tests."""

    def _write(name, text):
        data = text if isinstance(text, bytes) else text.encode()
        if request.param == "gz":
            name, data = name + ".gz", gzip.compress(data)
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return _write


def pairs(stream):
    assert stream.src.dtype == stream.dst.dtype == np.uint32
    return list(zip(stream.src.tolist(), stream.dst.tolist(), strict=True))


def test_snap_text(write):
    path = write("g.txt", "# Directed graph (each unordered pair once)\n# FromNodeId ToNodeId\n0\t3\n\n2 1\r\n  3\t0")
    stream = read(path)
    assert pairs(stream) == [(0, 3), (2, 1), (3, 0)]
    assert (stream.n_vertices, stream.directed, stream.t, stream.weight) == (4, True, None, None)


def test_snap_undirected_comment_and_override(write):
    path = write("g.txt", "# Undirected graph: x.txt\n0 1\n")
    assert not read(path).directed
    assert read(path, directed=True).directed


def test_comment_between_rows(write):
    assert pairs(read(write("g.txt", "0 1\n# 7 8\n% 7 8\n2 3\n"))) == [(0, 1), (2, 3)]


def test_third_column_is_time_and_order_is_kept(write):
    stream = read(write("g.txt", "0 1 30\n1 2 10\n2 0 10\n"))
    assert stream.t.tolist() == [30, 10, 10]
    assert stream.t.dtype == np.int64
    assert pairs(stream.in_order()) == [(1, 2), (2, 0), (0, 1)]


def test_four_columns_are_weight_and_time(write):
    stream = read(write("g.csv", "6,2,4,1289241911.72836\n6,5,-2,1289241941.53378\n"))
    assert stream.weight.tolist() == [4.0, -2.0]
    assert stream.t.tolist() == [1289241911.72836, 1289241941.53378]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_header(write, mark):
    text = "Weight,Target,note,Source,op\n0.5,1,9,0,1\n1e-3,2,9,1,-1\n".replace(",", mark)
    stream = read(write("g.tsv" if mark == "\t" else "g.csv", text))
    assert pairs(stream) == [(0, 1), (1, 2)]
    assert stream.op.tolist() == [1, -1]
    np.testing.assert_array_equal(stream.weight, np.float32([0.5, 1e-3]))


def test_columns(write):
    stream = read(write("g.csv", "a,b,c\n9,0,1\n9,1,2\n"), columns=["_", "dst", "src"])
    assert pairs(stream) == [(1, 0), (2, 1)]


@pytest.mark.parametrize("columns", [["src"], ["src", "dst", "dst"], ["src", "dst", "colour"]])
def test_bad_columns(write, columns):
    with pytest.raises(InvalidOption):
        read(write("g.csv", "0,1,2\n"), columns=columns)


def test_relabel_names(write):
    stream = read(write("g.csv", "New York,Boston,2\nBoston,São Paulo,3\n"), relabel=True)
    assert pairs(stream) == [(0, 1), (1, 2)]
    assert stream.names.tolist() == ["New York", "Boston", "São Paulo"]
    assert stream.t.tolist() == [2, 3]
    assert stream.find("Boston") == 1


def test_relabel_numbers_in_order_of_first_appearance(write):
    stream = read(write("g.txt", "4000000000000 7\n7 3\n3 4000000000000\n"), relabel=True)
    assert pairs(stream) == [(0, 1), (1, 2), (2, 0)]
    assert stream.names.tolist() == ["4000000000000", "7", "3"]


def test_relabel_ids_past_64_bits(write):
    stream = read(write("g.txt", "18446744073709551617 18446744073709551616\n1 18446744073709551617\n"), relabel=True)
    assert pairs(stream) == [(0, 1), (2, 0)]
    assert stream.names.tolist() == ["18446744073709551617", "18446744073709551616", "1"]


def test_relabel_keeps_the_graph(tmp_path):
    rng = np.random.default_rng(3)
    src, dst = rng.integers(0, 300, (2, 2000)) * 10**9
    np.savez(tmp_path / "g.npz", src=src, dst=dst)
    stream = read(tmp_path / "g.npz", relabel=True)
    old = stream.names.astype(np.int64)
    np.testing.assert_array_equal(old[stream.src], src)
    np.testing.assert_array_equal(old[stream.dst], dst)
    assert old.tolist() == list(dict.fromkeys(np.stack([src, dst], 1).ravel().tolist()))


@pytest.mark.parametrize("empty", ["", "\n\n", "# nothing\n"])
def test_empty_text_is_a_graph_without_edges(write, empty):
    stream = read(write("g.txt", empty))
    assert (len(stream), stream.n_vertices) == (0, 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 1\n1 x\n", "row 1 is 'x'"),
        ("# c\n0 1\n\n1\n", "Expected 2 columns, got 1"),
        ("0 1\n1 2 3\n", "Expected 2 columns, got 3"),
        ("0 1\n1 -2\n", r"dst\[1\] is -2"),
        ("0 1\n1.5 2\n", r"src\[1\] is 1.5"),
        ("0 1\n\n# c\nnan 2\n", r"src\[1\] is missing"),
        ("0 1\n2 inf\n", r"dst\[1\] is inf"),
        ("0 1\n2 4294967295\n", r"dst\[1\] is 4294967295"),
        ("0 1\n2 99999999999999999999999\n", r"dst\[1\] is 1e"),
        ("0 1 1\n2 3 nan\n", r"t\[1\] is missing"),
        ("0 1\n- 3\n", "row 1 is '-'"),
        ("0 1\n0x1 3\n", "row 1 is '0x1'"),
        ("0 1\n1_0 3\n", "row 1 is '1_0'"),
        ("from nowhere\n0 1\n", "has neither numbers nor the names"),
        ("0 1 2 3 4\n", "it has 5 columns, and 0 are named"),
    ],
)
def test_a_malformed_row_is_named(write, text, reason):
    path = write("g.txt", text)
    with pytest.raises(ReadError, match=reason) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("src,dst,op\n0,1,1\n0,1,2\n", r"op\[1\] is 2"),
        ("src,dst,weight\n0,1,1\n0,1,nan\n", r"weight\[1\] is missing"),
        ("src,dst,weight\n0,1,1\n0,,2\n", r"dst\[1\] is missing"),
        ("src,dst\n0,1\n0 1\n", "Expected 2 columns, got 1"),
        ("src,dst\n0,1\n0,1,\n", "Expected 2 columns, got 3"),
    ],
)
def test_a_malformed_row_of_csv_is_named(write, text, reason):
    with pytest.raises(ReadError, match=reason):
        read(write("g.csv", text))


@pytest.mark.parametrize("bad", ["a,b,c\n", "a,b,x\n", "a,,1\n", "a,b\n"])
def test_malformed_row_among_names(write, bad):
    with pytest.raises(ReadError, match=r"g\.csv"):
        read(write("g.csv", "src,dst,weight\na,b,1\n" + bad), relabel=True)


def test_matrix_market_general(write):
    stream = read(write("m.mtx", "%%MatrixMarket matrix coordinate real general\n% c\n\n5 5 2\n1 5 2.5\n3 1 -1e2\n"))
    assert pairs(stream) == [(0, 4), (2, 0)]
    assert stream.weight.tolist() == [2.5, -100.0]
    assert (stream.n_vertices, stream.directed) == (5, True)


@pytest.mark.parametrize("field", ["pattern", "real", "integer"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_matrix_market_as_scipy_writes_it(tmp_path, field, symmetry):
    rng = np.random.default_rng(5)
    matrix = scipy.sparse.random(30, 30, 0.1, random_state=rng).tocoo()
    matrix.data = np.round(matrix.data * 100 + 1)
    if symmetry == "symmetric":
        matrix = (matrix + matrix.T).tocoo()
    matrix = matrix.astype(np.int64) if field == "integer" else matrix
    scipy.io.mmwrite(tmp_path / "m.mtx", matrix, field=field, symmetry=symmetry)
    stream = read(tmp_path / "m.mtx")
    make = nx.DiGraph if stream.directed else nx.Graph
    expected = nx.from_scipy_sparse_array(matrix, create_using=make)
    assert stream.directed == (symmetry == "general")
    assert stream.n_vertices == 30
    assert len(stream) == expected.number_of_edges()
    weights = [None] * len(stream) if field == "pattern" else stream.weight.tolist()
    for (u, v), weight in zip(pairs(stream), weights, strict=True):
        assert expected.has_edge(u, v)
        assert weight is None or weight == expected[u][v]["weight"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%%MatrixMarket\n", "line 1 is"),
        ("%%MatrixMarket matrix array real general\n2 2\n", "the matrix is dense"),
        ("%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 1 0 0\n", "line 1 says complex"),
        ("%%MatrixMarket matrix coordinate real general\n2 x 1\n", "line 2 is '2 x 1'"),
        ("%%MatrixMarket matrix coordinate real general\n2 3 0\n", "shape"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 nan\n", "weight.0. is missing"),
    ],
)
def test_malformed_matrix_market(write, text, reason):
    with pytest.raises(ReadError, match=reason):
        read(write("m.mtx", text))


def test_npz(tmp_path):
    columns = {"src": [0, 1], "dst": [1, 2], "t": [5, 6], "op": [1, -1], "weight": [0.5, 1.5]}
    np.savez(tmp_path / "g.npz", **columns, names=np.array([b"a", "é".encode(), b"c", b"alone"]), directed=False)
    stream = read(tmp_path / "g.npz")
    assert pairs(stream) == [(0, 1), (1, 2)]
    assert (stream.t.tolist(), stream.op.tolist(), stream.weight.tolist()) == ([5, 6], [1, -1], [0.5, 1.5])
    assert (stream.n_vertices, stream.directed) == (4, False)
    assert stream.name(1) == "é"
    assert (stream.op.dtype, stream.weight.dtype) == (np.int8, np.float32)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"src": [0]}, "no column dst"),
        ({"src": [0], "dst": [1, 2]}, r"dst has shape \(2,\)"),
        ({"src": [[0]], "dst": [[1]]}, "src has type ndarray and 2 dimensions"),
        ({"src": [0, 1], "dst": [1, -3]}, r"dst\[1\] is -3"),
        ({"src": [0, np.nan], "dst": [1, 2]}, r"src\[1\] is missing"),
        ({"src": ["a"], "dst": ["b"]}, r"src\[0\] is 'a'"),
        ({"src": [0], "dst": [1], "op": [3]}, r"op\[0\] is 3"),
        ({"src": [0], "dst": [1], "names": ["only one"]}, "the vertex 1 and 1 vertices"),
        ({"src": [0], "dst": [1], "n_vertices": 1}, "the vertex 1 and 1 vertices"),
    ],
)
def test_malformed_npz(tmp_path, columns, reason):
    np.savez(tmp_path / "g.npz", **columns)
    with pytest.raises(ReadError, match=reason):
        read(tmp_path / "g.npz")


def test_pickled_npz_is_refused(tmp_path):
    np.savez(tmp_path / "g.npz", src=np.array([{}], object), dst=[0])
    with pytest.raises(ReadError, match="pickle"):
        read(tmp_path / "g.npz")


def test_parquet(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"time": [3, 4], "Source": [0, 1], "target": [1, 2], "w": [0.5, 2.0]})
    frame.to_parquet(tmp_path / "g.parquet")
    stream = read(tmp_path / "g.parquet")
    assert pairs(stream) == [(0, 1), (1, 2)]
    assert (stream.t.tolist(), stream.weight.tolist()) == ([3, 4], [0.5, 2.0])
    pandas.DataFrame({"source": ["b", "a"], "target": ["a", "c"]}).to_parquet(tmp_path / "names.parquet")
    assert read(tmp_path / "names.parquet", relabel=True).names.tolist() == ["b", "a", "c"]
    frame.assign(Source=[0, -1]).to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(ReadError, match=r"src\[1\] is -1"):
        read(tmp_path / "bad.parquet")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *args, **options)

    (tmp_path / "g.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ReadError, match="pip install pyarrow"):
        read(tmp_path / "g.parquet")


@pytest.mark.parametrize("name", ["g.txt", "g.txt.gz", "g.mtx", "g.npz", "g.parquet"])
def test_missing_file(tmp_path, name):
    with pytest.raises(ReadError, match=r"g\..*: .*there is no such file"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["g.txt.gz", "g.npz", "g.parquet"])
@pytest.mark.parametrize("content", [b"", b"0 1\n", gzip.compress(b"0 1\n" * 999, mtime=0)[:20]])
def test_not_that_format(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ReadError, match=r"g\."):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "edges", "vertices"),
    [("CollegeMsg", 59_835, 1_899), ("cit-HepPh", 421_578, 34_546), ("luxembourg_osm", 119_666, 114_599)],
)
def test_real_graphs(data_dir, name, edges, vertices):
    path = data_dir / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"{name} is not here")
    stream = read(path)
    assert (len(stream), stream.n_vertices) == (edges, vertices)


def test_debian_data_of_the_repository():
    from workloads.demo import DATA

    stream = read(DATA)
    assert (len(stream), stream.n_vertices) == (807_194, 107_331)
    assert int((stream.op < 0).sum()) == 194_019
    libc6 = stream.find("libc6")
    assert (stream.dst == libc6).sum() > 1000 * (stream.src == libc6).sum()  # edges go from package to dependency
