"""Changes by tables: the same as by arrays; a bad table changes nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch, InvalidBatch, InvalidOption

pl = pytest.importorskip("polars")

KINDS = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
    "arrow": pa.table,
    "batch": lambda columns: pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()}),
    "mapping": dict,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strings", [False, True], ids=["numbers", "strings"])
def test_tables_are_as_arrays(kind, strings):
    rng, make = fresh_rng(), KINDS[kind]
    with DynamicGraph(weighted=True) as one, DynamicGraph(weighted=True) as other:
        for _ in range(3):
            src, dst = rng.integers(0, 30, (2, 40))
            weight, op = rng.random(40, np.float32), rng.choice([1, -1], 40)
            if strings:
                src, dst = (np.array([f"v{i}" for i in end], object) for end in (src, dst))
            columns = {"from": src, "to": dst, "km": weight, "sign": op, "note": rng.random(40)}
            ends = {"source": "from", "target": "to"}
            table = make(columns)
            assert one.insert(table, weight="km", **ends).inserted == other.insert(src, dst, weight).inserted
            keys = "string" if strings else None
            want = other.update(EdgeBatch(src, dst, weight, op, keys))
            done = one.update(table, weight="km", op="sign", **ends)
            assert (done.inserted, done.updated, done.deleted) == (want.inserted, want.updated, want.deleted)
            part = make({name: values[:9] for name, values in columns.items()})
            assert one.delete(part, **ends).missing == other.delete(src[:9], dst[:9]).missing
            by = ["source", "target"]
            pd.testing.assert_frame_equal(
                one.to_pandas().sort_values(by, ignore_index=True), other.to_pandas().sort_values(by, ignore_index=True)
            )
        assert one.keys == ("string" if strings else None)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "mapping"])
def test_ingest_takes_the_same_names(kind):
    table = KINDS[kind]({"from": np.array([0, 1]), "to": np.array([1, 2]), "km": np.array([1.5, 2.5]), "x": [0, 0]})
    for keys in (None, "int64"):
        with DynamicGraph(n_vertices=3, weighted=True) if keys is None else DynamicGraph(weighted=True) as graph:
            graph.ingest([table], source="from", target="to", weight="km")
            assert graph.weights([0, 1], [1, 2]).tolist() == [1.5, 2.5]
    with DynamicGraph(n_vertices=3) as graph:
        graph.ingest([{"from": [0], "target": [1]}], source="from")
        assert graph.has_edges([0], [1]).all()
        with pytest.raises(InvalidOption, match="and columns are named by source"):
            graph.ingest([table], columns={"src": "from", "dst": "to"}, source="from")


def frame(**columns) -> pd.DataFrame:
    good = {"source": [0, 1, 2], "target": [1, 2, 0], "w": [0.5, 1.0, 1.5], "op": [1, -1, 1]}
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in (good | columns).items()})


BAD = [
    (frame(source=[0, None, 2]), "column 'source', row 1 is missing"),
    (frame(target=[0, 1, 0.5]), "column 'target', row 2 is 0.5; vertex ids are whole numbers"),
    (frame(target=[0, "ada", 2]), "column 'target', row 1 is 'ada'"),
    (frame(source=[0, -3, 2]), "column 'source', row 1 is -3"),
    (frame(w=[1, "far", 2]), "column 'w', row 1 is 'far'; weights are numbers"),
    (frame(w=[1, 2, None]), "column 'w', row 2 is missing"),
    (frame(op=[1, 0, -1]), r"column 'op', row 1 is 0; operations are \+1"),
    (frame(op=[1, None, -1]), "column 'op', row 1 is missing"),
    (frame(op=["insert", 1, 1]), "column 'op', row 0 is 'insert'"),
    (frame().rename(columns={"target": "to"}), "no column 'target'; its columns are 'source', 'to', 'w', 'op'"),
    (frame().set_axis(["source", "target", "target", "op"], axis=1), "has 2 columns 'target'"),
    ({"source": [0, 1], "target": [1], "w": [1, 2], "op": [1, 1]}, "column 'target' has 1 rows and column 'source'"),
    ({"source": [0], "target": [1], "w": [1.0], "op": [1, 1]}, "column 'op' has 2 rows"),
    ({"source": [[0, 1]], "target": [[1, 2]], "w": [1.0], "op": [1]}, "column 'source' has shape"),
    (pl.DataFrame({"source": [object()], "target": [0], "w": [1.0], "op": [1]}), "column 'source' has the type Object"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "message"), BAD, ids=[message[:35] for _, message in BAD])
def test_a_bad_table_changes_nothing(table, message):
    with DynamicGraph(n_vertices=3, weighted=True) as graph:
        graph.insert([0], [1], [2.0])
        with pytest.raises(InvalidBatch, match=message):
            graph.update(table, weight="w", op="op")
        assert (graph.epoch, graph.weights([0], [1]).tolist()) == (1, [2.0])


def test_what_is_no_table():
    with DynamicGraph(n_vertices=3) as graph, pytest.raises(TypeError, match="or a mapping of arrays, got int"):
        graph.insert(0)


def test_what_does_not_fit_together():
    with DynamicGraph(keys="string") as graph:
        with pytest.raises(InvalidBatch, match="column 'source', row 0 is 0; the graph's keys are strings"):
            graph.insert(pd.DataFrame({"source": [0], "target": [1]}))
        with pytest.raises(InvalidOption, match="weight is a list; of a table it is the name of a column"):
            graph.insert(pd.DataFrame({"source": ["a"], "target": ["b"]}), weight=[1.0])
        for change in (graph.insert, graph.delete):
            with pytest.raises(
                InvalidOption, match="source is 'from' and target None; they name columns, and src and dst are arrays"
            ):
                change(["a"], ["b"], source="from")
        assert graph.insert(pd.DataFrame({"source": ["a"], "target": ["b"]}).iloc[:0]).inserted == 0
