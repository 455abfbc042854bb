"""`stream`: every kind of source gives the graph of its batches, and the summary counts what was done."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from graph_model import GraphModel, random_batch
from interrupts import ctrl_c, when
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch, InvalidBatch, InvalidOption, ReadError, UnknownVertex, UpdateReport
from mgraph.client.batches.pipeline import Pipeline
from mgraph.client.inputs.streaming import _Run
from mgraph.sources import Folder, Numbered

N = 30
COLUMNS = ("src", "dst", "weight", "op")


def columns(batch: EdgeBatch) -> dict[str, np.ndarray]:
    return {name: getattr(batch, name) for name in COLUMNS}


def some(n: int) -> tuple[list[EdgeBatch], GraphModel, np.ndarray]:
    """Batches, the graph after all of them, and the sum of their counts."""
    rng, model = fresh_rng(), GraphModel(N, weighted=True)
    batches = [random_batch(rng, N, 40, True) for _ in range(n)]
    return batches, model, np.sum([model.update(batch) for batch in batches], axis=0)


def assert_same(graph: DynamicGraph, model: GraphModel) -> None:
    offsets, dst, weight = model.csr()
    csr = graph.to_csr()
    for found, wanted in zip((csr.offsets, csr.dst, csr.weight), (offsets, dst, weight), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("n_vertices", [N, None])  # several in flight, and one at a time
def test_an_iterable_of_parts(n_vertices):
    batches, model, counts = some(25)
    kinds = [lambda b: b, columns, lambda b: tuple(columns(b).values())]
    reports = []
    with DynamicGraph(n_vertices=n_vertices, weighted=True, keys=None) as graph:
        graph.insert([N - 1], [N - 1], [1.0])
        graph.delete([N - 1], [N - 1])
        done = graph.stream((kinds[i % 3](batch) for i, batch in enumerate(batches)), on_batch=reports.append)
        assert_same(graph, model)
    assert [report.epoch for report in reports] == list(range(3, 28))
    assert (done.inserted, done.updated, done.deleted, done.missing) == tuple(counts)
    assert (done.batches, done.edges, done.epoch) == (25, sum(counts), 27)
    seconds = [report.seconds for report in reports]
    assert done.latency == (*np.percentile(seconds, [50, 99]), max(seconds))
    assert 0 < max(seconds) <= done.seconds
    assert done.edges_per_second == done.edges / done.seconds
    assert f"25 batches, {done.edges} edges" in str(done)


def test_large_parts_are_cut_in_stream_order():
    batches, model, _ = some(3)
    sizes = [len(batch) for batch in batches]
    with DynamicGraph(n_vertices=N, weighted=True) as graph:
        done = graph.stream(iter(batches), batch=7)
        assert_same(graph, model)
    assert done.batches == done.epoch == sum(-(-size // 7) for size in sizes)


def test_files_are_read_a_piece_at_a_time(tmp_path):
    arrow, csv, parquet = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".csv", ".parquet"))
    batches, model, _ = some(3)
    tables = [arrow.table({"from": b.src, "to": b.dst, "how": b.op, "much": b.weight, "x": b.src}) for b in batches]
    names = {"source": "from", "target": "to", "op": "how", "weight": "much"}
    by = {"src": "from", "dst": "to", "op": "how", "weight": "much"}
    np.savez(tmp_path / "a.npz", **{by[key]: column for key, column in columns(batches[0]).items()})
    parquet.write_table(tables[1], tmp_path / "b.pq")
    csv.write_csv(tables[2], tmp_path / "c.csv")
    with DynamicGraph(n_vertices=N, weighted=True) as graph:
        done = graph.stream([tmp_path / "a.npz", str(tmp_path / "b.pq")], 10, **names)
        done = graph.stream(tmp_path / "c.csv", 10, **names)
        assert done.batches == -(-len(batches[2]) // 10)
        assert_same(graph, model)
        np.savez(tmp_path / "bad.npz", src=[1])
        with pytest.raises(ReadError, match=r"bad.npz.*no column 'target'; its columns are 'src'") as raised:
            graph.stream([tmp_path / "bad.npz"])
        assert "0 batches" in raised.value.__notes__[-1]
        for name in ("none.csv", "none.npz"):
            with pytest.raises(ReadError, match=f"{name}: there is no such file"):
                graph.stream(tmp_path / name)
        with pytest.raises(InvalidOption, match=r"d.txt: files of edges end in"):
            graph.stream([tmp_path / "a.npz", tmp_path / "d.txt"])


def test_frames_keys_and_dask():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"src": ["a", "b", "c", "a"], "dst": ["b", "c", "a", "c"]})
    with DynamicGraph() as graph:
        assert graph.stream(frame, 3).batches == 2
        assert graph.keys == "string"
        assert sorted(zip(*graph.to_pandas().values.T, strict=True)) == sorted(zip(*frame.values.T, strict=True))
    numbers = pd.DataFrame({"src": range(20), "dst": range(1, 21)})
    with DynamicGraph(n_vertices=21) as graph:
        assert graph.stream(dd.from_pandas(numbers, npartitions=4)).batches == 4
        assert graph.stream(dd.from_pandas(numbers, npartitions=2).to_delayed()).updated == 20
        assert graph.num_edges == 20


@pytest.mark.parametrize("weighted", [False, True])
def test_what_a_graph_gives_is_taken(weighted):
    """Tables with the columns source and target, as `insert` takes them, of one graph in another."""
    pl = pytest.importorskip("polars")
    batches, *_ = some(2)
    with DynamicGraph(n_vertices=N, weighted=weighted, directed=False) as graph:
        for one in batches:
            graph.insert(one.src, one.dst, one.weight if weighted else None)
        frame = graph.to_pandas()
        tables = frame, graph.to_polars(), graph.to_arrow(), pl.from_pandas(frame).lazy(), dict(frame)
        for table in (*tables, iter(tables)):
            with DynamicGraph(n_vertices=N, weighted=weighted, directed=False) as other:
                assert other.stream(table, 7).inserted == graph.num_edges
                assert other.fingerprint() == graph.fingerprint()
                if weighted:
                    src, dst = frame["source"], frame["target"]
                    np.testing.assert_array_equal(other.weights(src, dst), graph.weights(src, dst))
    with DynamicGraph(n_vertices=N) as graph:
        with pytest.raises(InvalidBatch, match="no column 'target'; its columns are 'source', 'to'"):
            graph.stream({"source": [0], "to": [1]})
        with pytest.raises(InvalidBatch, match="has the columns 'source' and 'src'; source= says which"):
            graph.stream({"src": [0], "dst": [1], "source": [2]})
        graph.stream({"source": [0], "target": [1], "x": [2]}, source="target", target="x")
        assert graph.has_edges([1], [2]).all()
        assert graph.num_edges == 1


def test_files_with_source_and_target(tmp_path):
    np.savez(tmp_path / "a.npz", source=[0, 1], target=[1, 2])
    (tmp_path / "b.csv").write_text("source,target\n3,4\n4,5\n")
    with DynamicGraph(n_vertices=N) as graph:
        assert graph.stream([tmp_path / "a.npz", tmp_path / "b.csv"]).inserted == 4
        np.savez(tmp_path / "c.npz", source=[5], target=[6], note=[7])
        graph.ingest(tmp_path / "c.npz")
        assert graph.has_edges([5], [6]).all()


def test_lazy_frames():
    pl = pytest.importorskip("polars")
    lazy = pl.LazyFrame({"from": ["a", "b"], "to": ["b", "c"], "note": [1, 2]})
    names = {"source": "from", "target": "to"}
    with DynamicGraph() as graph:
        assert graph.stream(lazy, 1, **names).batches == 2
        assert graph.stream([lazy, lazy], **names).updated == 4
        assert graph.ingest(lazy, **names)[0].updated == 2
        assert graph.insert(lazy, source="from", target="to").updated == 2
        assert graph.delete(lazy, source="from", target="to").deleted == 2
        with pytest.raises(InvalidBatch, match="no column 'source'; its columns are 'from', 'to', 'note'"):
            graph.stream(lazy)
    numbers = pl.LazyFrame({"src": [0, 1], "dst": [1, 2]})
    with DynamicGraph(n_vertices=3) as graph:
        assert [one.inserted + one.updated for one in graph.ingest([numbers, numbers])] == [2, 2]
        assert graph.ingest(lambda rank, size, step: numbers if step == 0 else None)[0].updated == 2


def test_places_are_kept_where_there_is_a_store(tmp_path):
    batches, model, _ = some(8)
    pairs = [(i, columns(batch)) for i, batch in enumerate(batches)]
    with DynamicGraph(n_vertices=N, weighted=True, store=tmp_path / "store") as graph:
        assert graph.stream(Numbered("i", pairs[:5]), batch=3).batches == 5  # a place is one batch
        assert graph.stream(Numbered("i", pairs)).batches == 3
        assert graph.offsets == {"i": 7}
        assert_same(graph, model)
    (tmp_path / "files").mkdir()
    for i, batch in enumerate(batches):
        np.savez(tmp_path / "files" / f"{i}.npz", **columns(batch))
    with DynamicGraph(n_vertices=N, weighted=True) as graph:
        assert graph.stream(Folder(tmp_path / "files", idle=0)).batches == 8
        assert_same(graph, model)


def test_edges_that_expire_and_come_late_are_summed():
    with DynamicGraph(n_vertices=N, times=True, window=10) as graph:
        done = graph.stream({"src": [i], "dst": [i + 1], "time": [t]} for i, t in enumerate([0, 5, 30, 3, 31]))
        assert (done.batches, done.inserted, done.expired, done.late) == (5, 4, 2, 1)
        assert graph.num_edges == 2
        assert "; 2 edges expired; 1 operations were late" in str(done)


@pytest.mark.parametrize("n_vertices", [N, None])
def test_an_error_says_what_was_applied(n_vertices):
    def source():
        yield [0], [1]
        yield [1], [2]
        yield [1], [-1]

    with DynamicGraph(n_vertices=n_vertices, keys=None) as graph:
        with pytest.raises(InvalidBatch, match=r"dst\[0\] is -1") as raised:
            graph.stream(source())
        assert "applied until then: 2 batches, 2 edges" in raised.value.__notes__[-1]
        assert (graph.epoch, graph.num_edges) == (2, 2)

        def enough(report):
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            graph.stream([([3], [4]), ([4], [5])], on_batch=enough)
        assert graph.epoch in (3, 4)  # the second batch may have been under way


def test_bad_arguments_change_nothing():
    with DynamicGraph(n_vertices=N) as graph:
        for bad, words in (
            ({"batch": 0}, "batch is 0"),
            ({"max_bytes": 0}, "max_bytes is 0"),
            ({"columns": {"src": "a"}}, "columns is"),
            ({"data": 3}, "got int"),
            ({"on_batch": 3}, "on_batch is 3; it must be a function"),
        ):
            with pytest.raises(InvalidOption, match=words):
                graph.stream(bad.pop("data", [([0], [1])]), **bad)
        assert graph.epoch == 0
        with pytest.raises(UnknownVertex, match=r"dst\[0\] is 30"):
            graph.stream([([0], [30])])
        assert graph.stream([]).batches == graph.epoch == 0
        assert str(graph.stream([])).startswith("0 batches, 0 edges in ")


def test_ctrl_c_leaves_a_whole_epoch_and_says_what_was_done():
    reports, waiting = [], threading.Event()

    def endless():
        for i in range(N - 1):
            yield [i], [i + 1]
            if i == 20:
                waiting.set()
                time.sleep(20)

    with DynamicGraph(n_vertices=N) as graph:
        with when(lambda: waiting.is_set() and graph.epoch == 21, ctrl_c), pytest.raises(KeyboardInterrupt) as raised:
            graph.stream(endless(), on_batch=reports.append)
        assert "applied until then: 21 batches, 21 edges" in raised.value.__notes__[-1]
        assert 1 <= len(reports) <= graph.epoch == graph.num_edges == 21


def test_a_batch_whose_answer_was_lost_counts_no_edges():
    with DynamicGraph(n_vertices=N) as graph:
        run = _Run(graph, None)
        for report in (UpdateReport(3, 2, 1, 1, 1, 0.1, 4, 5), UpdateReport(-1, -1, -1, -1, 2, float("nan"), -1, -1)):
            run.took(report)
        done = run.summary()
    assert (done.batches, done.edges, done.inserted, done.missing, done.late, done.expired) == (2, 7, 3, 1, 4, 5)


def test_the_source_is_read_no_further_than_the_pipeline_has_room(monkeypatch):
    """The pipeline's wait is the back-pressure: no part is read while it has not taken the one before."""
    read, taken, real = [], [], Pipeline.update

    def update(self, batch, offset=None):
        assert len(read) == len(taken) + 1
        taken.append(batch)
        return real(self, batch, offset)

    monkeypatch.setattr(Pipeline, "update", update)
    with DynamicGraph(n_vertices=N) as graph:
        done = graph.stream(read.append(i) or ([i], [i + 1]) for i in range(10))
    assert done.batches == len(taken) == 10
