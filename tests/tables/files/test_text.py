"""Tables in text: every row is there, and names are what the file says."""

from __future__ import annotations

import bz2
import datetime
import gzip
import lzma
import re

import pytest

from mgraph import DynamicGraph, ReadError
from mgraph.tables.files import opening


def edges(graph):
    with graph:
        frame = graph.to_pandas()
        return set(zip(frame["source"].tolist(), frame["target"].tolist(), strict=True))


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "text", "want"),
    [
        ("tags.csv", "source,target\n#py,#ai\n#ml,#ai\n%a,b\n", {("#py", "#ai"), ("#ml", "#ai"), ("%a", "b")}),
        ("people.txt", "Ada Lovelace\tGrace Hopper\n", {("Ada Lovelace", "Grace Hopper")}),
        ("people.tsv", "source\ttarget\nAda L\tGrace H\n", {("Ada L", "Grace H")}),
        ("spaced.txt", "a, b\nb, c\n", {("a", "b"), ("b", "c")}),
        ("spaced.csv", 'source, target\na, b\n"b, d", c\n', {("a", "b"), ("b, d", "c")}),
        ("kept.csv", "source,target\na, b\n", {("a", " b")}),
        ("names.txt", "source target\n0 1\n1 2\n", {(0, 1), (1, 2)}),
        ("names2.txt", "From To\nada grace\n", {("ada", "grace")}),
        ("letters.txt", "u v\n0 1\n1 2\n", {(0, 1), (1, 2)}),
        ("data.txt", "u v\nv 2\n", {("u", "v"), ("v", "2")}),
        ("quoted.csv", '"source","target"\n"a,1","b\nc"\n', {("a,1", "b\nc")}),
        ("comma.csv", '"x,y",source,target\n1,a,b\n', {("a", "b")}),
        ("newline.csv", '"x\ny",source,target\n1,a,b\n', {("a", "b")}),
        ("first.txt", '"Doe, J",ada\nada,"Roe, R"\n', {("Doe, J", "ada"), ("ada", "Roe, R")}),
        ("snap.txt", "# Nodes: 3\r\n0\t1\r\n1\t2\r\n", {(0, 1), (1, 2)}),
        ("mixed.txt", "0 \t 1\n1  2\n", {(0, 1), (1, 2)}),
        ("marked.csv", b"\xef\xbb\xbfsource,target\na,b\n", {("a", "b")}),
        ("empty_lines.csv", "\n\nsource,target\na,b\n", {("a", "b")}),
        ("hex.csv", "source,target\n0x1f,0x20\n", {("0x1f", "0x20")}),
        ("hex.txt", "0x1f 0x20\n7 8\n", {("0x1f", "0x20"), ("7", "8")}),
        ("hex2.csv", "source,target,note\n1,31,0x5\n", {(1, 31)}),
        ("floats.csv", "source,target\n1.0,2.0\n", {(1, 2)}),
    ],
)
def test_rows(tmp_path, name, text, want):
    assert edges(DynamicGraph.read(write(tmp_path / name, text))) == want


@pytest.mark.parametrize("call", ["read", "stream", "follow", "ingest"])
def test_keys_are_the_text_that_they_are(tmp_path, call):
    from mgraph.sources import Folder

    (folder := tmp_path / "files").mkdir()
    rows = [("007", "true"), ("0x1f", "2026-01-05"), ("1e3", "null"), ("", "NA"), ("3.0", "12:30:00")]
    text = "source,target\n" + "".join(f"{a},{b}\n" for a, b in rows)
    path = write(folder / "edges-1.csv", text)
    if call == "read":
        assert edges(DynamicGraph.read(path, keys="string")) == set(rows)
        return
    store = tmp_path / "store" if call == "follow" else None
    graph = DynamicGraph(keys="string", store=store)
    getattr(graph, call)(Folder(folder, idle=0) if call == "follow" else path)
    assert edges(graph) == set(rows)


def made(call, path, keys, tmp_path):
    """A graph of a file by one of the ways in; how an error ends is left out, since some name a step."""
    from mgraph.sources import Folder

    if call in ("read", "from_csv"):
        return getattr(DynamicGraph, call)(path, keys=keys)
    graph = DynamicGraph(keys=keys, store=tmp_path / f"{call}-{path.stem}" if call == "follow" else None)
    try:
        getattr(graph, call)(Folder(path.parent, idle=0) if call == "follow" else path)
    except ReadError:
        graph.close()
        raise
    return graph


MANY = "".join(f"{i},{i + 1}\n" for i in range(120_000))  #: more than a block of the reader


@pytest.mark.parametrize(
    ("rows", "keys", "want"),
    [
        ("007,8\n", "auto", {(7, 8)}),
        ("0x1f,0x20\n", "auto", {("0x1f", "0x20")}),
        ("0x1f,0x20\n", "int64", "row 0 is '0x1f', which is no whole number"),
        ("true,false\n", "auto", {("true", "false")}),
        ("true,false\n", "int64", "row 0 is 'true', which is no whole number"),
        ("2026-01-05,10:00:00\n", "auto", {("2026-01-05", "10:00:00")}),
        ("2026-01-05,7\n", "auto", "row 0 is '2026-01-05', and column 'target' has whole numbers"),
        ("1.0,+2\n 3,-4\n", "auto", {(1, 2), (3, -4)}),
        ("1,x\nada,3\n", "auto", {("1", "x"), ("ada", "3")}),
        ("1,2\nada,3\n", "auto", "row 1 is 'ada', and column 'target' has whole numbers"),
        (",x\ny,z\n", "auto", "row 0 is missing"),
        (MANY + "ada,grace\n", "auto", {("7", "8"), ("ada", "grace")}),
        (MANY + "ada,3\n", "auto", "row 120000 is 'ada', and column 'target' has whole numbers"),
        (MANY + "ada,3\n", "int64", "row 120000 is 'ada', and column 'target' has whole numbers"),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value)[-24:],  # a set has no order of its own
)
def test_every_way_in_takes_ids_as_numbers_or_as_text(tmp_path, rows, keys, want):
    (tmp_path / "files").mkdir()
    path = write(tmp_path / "files" / "edges-1.csv", f"source,target\n{rows}")
    for call in ("read", "from_csv", "ingest", "stream", "follow"):
        if isinstance(want, str):
            with pytest.raises(ReadError, match=want):
                made(call, path, keys, tmp_path)
            continue
        found = edges(made(call, path, keys, tmp_path))
        assert found >= want, call
        assert len(found) == rows.count("\n"), call


def test_a_line_of_names_without_an_end_is_a_table_without_rows(tmp_path):
    path = write(tmp_path / "a.csv", "source,target")
    with DynamicGraph(n_vertices=2) as graph:
        assert graph.stream(path, progress=False).batches == 0
        assert [report.inserted for report in graph.ingest([path])] == [0]
    for text in ("from to", "source,target"):
        with DynamicGraph.read(write(tmp_path / "a.txt", text), keys="int64") as graph:
            assert len(graph) == 0


def test_a_bad_value_in_a_later_piece_of_a_file(tmp_path):
    path = write(tmp_path / "a.csv", f"source,target\n{MANY}-1,2\n")
    message = r"from row (\d+) on, row (\d+) is -1"
    with DynamicGraph(n_vertices=130_000) as graph, pytest.raises(ReadError, match=message) as error:
        graph.stream(path, batch=100, progress=False)
    first, row = map(int, re.findall(r"row (\d+)", str(error.value)))
    assert first + row == 120_000


@pytest.mark.parametrize(
    ("column", "first", "last", "want"),
    [
        ("weight", "1", "0.5", 0.5),
        ("weight", "1", "1e3", 1000),
        ("weight", "1", " inf", float("inf")),
        ("weight", "1", "true", r"row \d+ is 'true'; weights are numbers"),
        ("weight", "1.5", "", r"row \d+ is missing"),
        ("time", "2026-01-02", "2026-01-02 00:00:01.5", "2026-01-02T00:00:01.500"),
        ("time", "2026-01-02 00:00:00", "3", r"row \d+ is '3', which is no date"),
    ],
)
def test_a_later_row_of_a_long_file_is_of_another_type(tmp_path, column, first, last, want):
    """Pyarrow chooses the types of a file that is read in pieces by its first MiB."""
    rows = 100_000  # of 11 bytes and more
    lines = [f"source,target,{column}", *[f"1000,1000,{first}"] * rows, f"1000,1001,{last}"]
    file = write(tmp_path / "long.csv", "\n".join(lines))
    options = {"weighted": True} if column == "weight" else {"times": "datetime64[ms]"}
    with DynamicGraph(n_vertices=2000, **options) as graph:
        if isinstance(want, str) and "row" in want:
            with pytest.raises(ReadError, match=want):
                graph.stream(file, batch=rows, progress=False)
        else:
            assert graph.stream(file, batch=rows // 10, progress=False).inserted == 2
            edges = graph.neighbors([1000], time=column == "time")
            assert str(getattr(edges, column)[edges.dst == 1001][0]) == str(want if column == "time" else float(want))


def test_dates_in_a_file_and_a_window(tmp_path):
    for day in ("2026-01-05", "2026/01/05"):
        path = write(tmp_path / "a.csv", f"source,target,when\n0,1,{day} 10:00\n1,2,{day} 11:30\n")
        for window in (datetime.timedelta(hours=1), "1h"):
            with DynamicGraph.from_csv(path, time="when", window=window) as graph:
                assert graph.num_edges == 1
            with DynamicGraph(n_vertices=3, window=window) as graph:
                assert graph.stream(path, time="when", progress=False).inserted == 1
    path = write(tmp_path / "days.csv", "source,target,time\n0,1,2026-01-05\n1,2,2026-01-06\n")
    with DynamicGraph.from_csv(path, window=datetime.timedelta(hours=1)) as graph:
        assert graph.num_edges == 1


@pytest.mark.parametrize("suffix", [".gz", ".GZ", ".bz2", ".xz", ".XZ"])
def test_compressed_files(tmp_path, suffix):
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix.lower()]
    text = b"source,target\na,b\n"
    assert edges(DynamicGraph.read(write(tmp_path / f"a.csv{suffix}", pack(text)))) == {("a", "b")}
    assert edges(DynamicGraph.read(write(tmp_path / f"b.txt{suffix}", pack(b"0 1\n")))) == {(0, 1)}
    assert edges(DynamicGraph.read(write(tmp_path / "nameless.csv", pack(text)))) == {("a", "b")}
    with DynamicGraph(keys="string") as graph:
        assert graph.stream(tmp_path / f"a.csv{suffix}", progress=False).inserted == 1
        assert graph.ingest(tmp_path / f"a.csv{suffix}")[0].updated == 1
    whole = write(tmp_path / f"c.csv{suffix}", pack(text * 9)[:-9])
    with pytest.raises(ReadError, match=r"c\.csv"):
        DynamicGraph.read(whole)
    with pytest.raises(ReadError, match="its name says that it is compressed"):
        DynamicGraph.read(write(tmp_path / f"d.txt{suffix}", b"0 1\n"))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_a_decompression_bomb_is_refused(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(opening, "FREE", 1 << 20)
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
    path = write(tmp_path / f"bomb.csv{suffix}", pack(b"source,target\n") + pack(b"1,2\n" * (1 << 18)) * 2)
    with pytest.raises(ReadError, match="it grows past .* bytes, over 250 times its size"):
        DynamicGraph.read(path)
    with DynamicGraph(n_vertices=3) as graph, pytest.raises(ReadError, match="it grows past"):
        graph.stream(path, progress=False)


def test_paths_that_cannot_be_opened(tmp_path):
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    for path, words in (
        ("/".join(["a" * 200] * 50) + ".csv", "too long"), (tmp_path / "loop.csv", "symbolic links"),
        ("a\0b.csv", "null byte"), (tmp_path / "none.csv", "there is no such file"),
    ):  # fmt: skip
        with pytest.raises(ReadError, match=words):
            DynamicGraph.read(path)
        with DynamicGraph(n_vertices=3) as graph:
            for call in (graph.stream, graph.ingest):
                with pytest.raises(ReadError, match=words):
                    call(path)


@pytest.mark.parametrize("columns", [(0, 0), (0, 1, 1), ("b", "b")])
def test_a_column_that_is_wanted_twice(tmp_path, columns):
    path = tmp_path / "edges.txt"
    path.write_text("a b c\n1 2 3\n" if columns[0] == "b" else "1 2 3\n")
    with pytest.raises(ReadError, match=rf"column '{columns[-1]}' is wanted twice"):
        DynamicGraph.read(path, *columns)
