"""Mutated files of every format: an error of mgraph's, or the graph that the bytes say. Nothing else, and no end.

``MUTATIONS=85000 pytest -m slow tests/tables/files/test_mutated_files.py`` is the campaign.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from plain_graph import fresh_rng
from promise_records import note

from mgraph import MgraphError
from mgraph.convert.read import read
from mgraph.sources import Folder
from mgraph.tables.files.columnar import pieces_of
from mgraph.tables.names import Names


class Recorded:
    """Takes the place of a graph: keeps the batch that a file is."""

    last: Any = None

    def __init__(self, client: Any, n_vertices: int | None = None, **options: Any) -> None:
        self._updates, self.options, self.n_vertices = self, {"keys": "auto", **options}, n_vertices
        Recorded.last = None

    def apply(self, batch: Any, last: bool = True) -> None:
        Recorded.last = batch

    def add_vertices(self, vertices: Any) -> None:
        pass

    def close(self) -> None:
        pass


def table() -> pa.Table:
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, 50, (2, 40))
    return pa.table({"source": src, "target": dst, "weight": rng.random(40), "name": [f"n{i}" for i in src]})


def packed(make: Any) -> bytes:
    make(stream := io.BytesIO())
    return stream.getvalue()


def seeds() -> dict[str, bytes]:
    """A small file of each format, by its name."""
    columns = {name: column.to_numpy() for name, column in zip(table().column_names, table().columns, strict=True)}
    numbers = {name: column for name, column in columns.items() if name != "name"}
    lines = list(zip(columns["source"], columns["target"], columns["weight"].round(4), strict=True))
    text = "".join(f"{u} {v} {w}\n" for u, v, w in lines)
    csv = "source,target,weight,name\n" + "".join(f'{u},{v},{w},"n {u}"\n' for u, v, w in lines)
    graph = nx.Graph([(int(u), int(v)) for u, v, _ in lines if u != v])
    graph = nx.convert_node_labels_to_integers(graph)
    metis = f"{len(graph)} {graph.number_of_edges()}\n"
    metis += "".join(" ".join(str(v + 1) for v in graph[u]) + "\n" for u in range(len(graph)))
    entries = "".join(f"{u + 1} {v + 1} {w}\n" for u, v, w in {(u, v): (u, v, w) for u, v, w in lines}.values())
    n = entries.count("\n")
    return {
        "a.txt": ("# SNAP\n" + text).encode(), "tabs.txt": text.replace(" ", "\t").encode(), "a.csv": csv.encode(),
        "a.tsv": csv.replace(",", "\t").encode(),
        "a.mtx": f"%%MatrixMarket matrix coordinate real general\n50 50 {n}\n{entries}".encode(),
        "a.graph": metis.encode(),
        "a.gr": f"c x\np sp 50 40\n{''.join(f'a {u + 1} {v + 1} {w}' + chr(10) for u, v, w in lines)}".encode(),
        "a.graphml": packed(lambda stream: nx.write_graphml(graph, stream)), "a.e": text.encode(),
        "a.parquet": packed(lambda stream: pa.parquet.write_table(table(), stream)),
        "zstd.parquet": packed(lambda stream: pa.parquet.write_table(table(), stream, compression="zstd")),
        "a.npz": packed(lambda stream: np.savez(stream, **numbers)),
        "small.npz": packed(lambda stream: np.savez_compressed(stream, **numbers)),
        "a.csv.gz": gzip.compress(csv.encode(), mtime=0), "a.txt.bz2": bz2.compress(text.encode()),
        "a.txt.xz": lzma.compress(text.encode()),
    }  # fmt: skip


def mutated(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes of which one to three spots are changed, or that are cut."""
    body = bytearray(data)
    for _ in range(int(rng.integers(1, 3))):
        at, length = int(rng.integers(0, len(body) + 1)), int(rng.integers(1, 12))
        match int(rng.integers(0, 12)):
            case 0:
                del body[at:]
            case 1:
                del body[at : at + length]
            case 2:
                body[at:at] = bytes(rng.integers(0, 256, length, np.uint8))
            case 3:
                body[at:at] = body[at : at + length]
            case 4 | 8 if at < len(body):
                body[at] ^= 1 << int(rng.integers(0, 8))
            case 5 | 6 | 7:
                body[at:at] = rng.choice([b"\n", b" ", b"\0", b",", b"\t", b"-", b".", b"e9", b"#", b'"', b"<", b"\r"])
            case 9 if at < len(body):
                body[at] = int(rng.choice([*b"0123456789 .\n"]))
            case _:
                other = int(rng.integers(0, len(body) + 1))
                body[at : at + length] = body[other : other + length]
        if not body:
            break
    return bytes(body)


def oracle(name: str, data: bytes) -> list[tuple[int, int, float]] | None:
    """The entries of a Matrix Market or DIMACS file, read word by word with Python's own numbers; sorted."""
    lines = [line.split() for line in data.replace(b"\r\n", b"\n").split(b"\n")]
    if name == "a.mtx":
        rows = [line for line in lines[1:] if line and not line[0].startswith(b"%")][1:]
        first = 0
    else:
        rows = [line for line in lines if line and line[0] == b"a"]
        first = 1
    added: dict[tuple[int, int], float] = {}
    for row in rows:
        u, v, w = (float(re.sub(rb"[dD]", b"e", word)) for word in row[first : first + 3])
        place = int(u) - 1, int(v) - 1
        added[place] = added.get(place, 0.0) + w if name == "a.mtx" else w
    return sorted((u, v, float(np.float32(w))) for (u, v), w in added.items())


def campaign(folder: Path, many: int) -> Counter[str]:
    """Read `many` mutated files of each format, in each of the ways that take it; how they ended."""
    rng, ends = fresh_rng(), Counter[str]()
    for name, data in seeds().items():
        for _ in range(many):
            body = mutated(data, rng)
            (path := folder / name).write_bytes(body)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    read(Recorded, path, keys=rng.choice(["auto", "string"]) if name.endswith("csv") else "auto")
                    batch = Recorded.last
                    ends[f"{name}: read"] += 1
                except MgraphError:
                    ends[f"{name}: refused"] += 1
                    continue
                if name in ("a.mtx", "a.gr") and batch is not None:
                    found = dict(
                        zip(zip(batch.src.tolist(), batch.dst.tolist(), strict=True), batch.weight, strict=True)
                    )
                    assert sorted((u, v, float(w)) for (u, v), w in found.items()) == oracle(name, body), body
                try:
                    for columns, _, _ in pieces_of(path, Names(), None, 16):
                        assert {"src", "dst"} <= set(columns)
                except MgraphError:
                    ends[f"{name}: refused in pieces"] += 1
    note("hostile", inputs=many * len(seeds()))
    return ends


def test_mutated_files(tmp_path):
    ends = campaign(tmp_path, 40)
    assert sum(ends[f"{name}: read"] + ends[f"{name}: refused"] for name in seeds()) == 40 * len(seeds())


@pytest.mark.slow
@pytest.mark.timeout(36000)
def test_many_mutated_files(tmp_path, capsys):
    many = int(os.environ.get("MUTATIONS", "100000")) // len(seeds())
    ends = campaign(tmp_path, many)
    with capsys.disabled():
        print(dict(sorted(ends.items())))


def test_a_half_copied_file_is_read_again_when_it_changes(tmp_path, caplog):
    import threading
    import time

    from mgraph import DynamicGraph, ReadError

    (folder := tmp_path / "files").mkdir()
    whole = seeds()["a.parquet"]
    (folder / "edges-1.parquet").write_bytes(whole[:900])

    def finish() -> None:
        time.sleep(0.5)
        (folder / "edges-1.parquet").write_bytes(whole)

    with DynamicGraph(n_vertices=50, weighted=True, store=tmp_path / "store") as graph:
        thread = threading.Thread(target=finish)
        thread.start()
        assert graph.follow(Folder(folder, idle=2, settle=30), weight="weight") == 1
        thread.join()
        assert "edges-1.parquet" in caplog.text
        (folder / "edges-2.parquet").write_bytes(whole[:900])
        with pytest.raises(ReadError, match=r"edges-2\.parquet"):
            graph.follow(Folder(folder, idle=0.2))
        assert graph.offsets == {os.path.abspath(folder): 1}
