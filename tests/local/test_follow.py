"""Sources whose batches have places: each batch is in the graph exactly once, whoever is killed when."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cluster_processes import environment
from graph_model import GraphModel, random_batch
from plain_graph import fresh_rng

from mgraph import DynamicGraph, EdgeBatch, InvalidBatch, InvalidOption, ReadError, UnknownVertex
from mgraph.sources import Folder, Kafka, Numbered

N = 30


def columns(batch: EdgeBatch) -> dict[str, np.ndarray]:
    return {name: getattr(batch, name) for name in ("src", "dst", "weight", "op")}


def stream(rng: np.random.Generator, n: int) -> tuple[list[EdgeBatch], GraphModel]:
    """Batches, and the graph after all of them."""
    model, batches = GraphModel(N, weighted=True), [random_batch(rng, N, 40, True) for _ in range(n)]
    for batch in batches:
        model.update(batch)
    return batches, model


def assert_exactly_once(graph: DynamicGraph, batches: list[EdgeBatch], model: GraphModel) -> None:
    """All batches are there, in their order, and took one epoch each."""
    assert graph.epoch == len(batches)
    offsets, dst, weight = model.csr()
    csr = graph.to_csr()
    np.testing.assert_array_equal(csr.offsets, offsets)
    np.testing.assert_array_equal(csr.dst, dst)
    np.testing.assert_array_equal(csr.weight, weight)


def write(folder: Path, number: int, batch: EdgeBatch) -> None:
    """A file that is there at once."""
    np.savez(folder / "draft.tmp.npz", **columns(batch))
    (folder / "draft.tmp.npz").rename(folder / f"edges-{number:06d}.npz")


def opened(store: Path, **options: object) -> DynamicGraph:
    if (store / "store.json").exists():
        return DynamicGraph.open(None, store, **options)
    return DynamicGraph(n_vertices=N, weighted=True, store=store, **options)


FOLLOW = """
import sys
from pathlib import Path
from mgraph.sources import Folder
from test_follow import opened
folder, store, sync = sys.argv[1:]
with opened(Path(store), sync=sync) as graph:
    print("open", flush=True)
    graph.follow(Folder(folder, "files", idle=1.5))
print("end", flush=True)
"""


def follow_and_die(tmp_path: Path, rng: np.random.Generator, kills: int) -> int:
    """Follow a folder that grows in a process that is killed again and again; how often that was."""
    batches, model = stream(rng, 25 * (kills + 1))
    folder, store, done = tmp_path / "files", tmp_path / "store", 0
    folder.mkdir()
    waiting = list(enumerate(batches))
    env = environment()
    env["PYTHONPATH"] += f":{Path(__file__).parent}"
    for turn in range(kills + 1):
        process = subprocess.Popen(
            [sys.executable, "-c", FOLLOW, str(folder), str(store), ["always", "background"][turn % 2]],
            stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        end = time.monotonic() + float(rng.random() * 0.4)
        while waiting and (turn == kills or time.monotonic() < end):
            write(folder, *waiting.pop(0))
            time.sleep(0.002)
        if turn < kills:
            process.kill()
            done += 1
        else:
            assert process.stdout.readline() == "end\n"
        process.stdout.close()
        process.wait(10)
    with opened(store) as graph:
        assert_exactly_once(graph, batches, model)
        assert graph.offsets == {"files": len(batches) - 1}
    return done


def test_a_folder_that_grows_through_a_kill(tmp_path):
    assert follow_and_die(tmp_path, fresh_rng(), 1) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_folder_that_grows_through_many_kills(tmp_path):
    assert follow_and_die(tmp_path, fresh_rng(), 40) == 40


def test_files_of_each_kind_in_the_order_of_their_numbers(tmp_path):
    arrow, csv, parquet = (pytest.importorskip(f"pyarrow{name}") for name in ("", ".csv", ".parquet"))
    folder, store = tmp_path / "files", tmp_path / "store"
    folder.mkdir()
    (folder / "notes.txt").write_text("3")
    table = arrow.table({"from": [1, 2], "to": [2, 3]})
    parquet.write_table(table, folder / "b-2.parquet")
    csv.write_csv(arrow.table({"from": [1], "to": [2], "how": [-1]}), folder / "a-10.csv")
    names = {"source": "from", "target": "to"}
    with DynamicGraph(store=store) as graph:  # which grows
        assert graph.follow(Folder(folder, "f", idle=0), **names) == 2
        assert (graph.num_vertices, graph.num_edges, graph.offsets) == (4, 2, {"f": 10})
        assert graph.follow(Folder(folder, "f", idle=0), **names) == 0
        np.savez(folder / "c-9.npz", src=[5], dst=[5])  # too late
        np.savez(folder / "c-11.npz", src=[5])
        with pytest.raises(ReadError, match="c-11.npz.*no column 'target'"):
            graph.follow(Folder(folder, "f", idle=0))
        (folder / "d-011.npz").touch()
        with pytest.raises(InvalidOption, match="have the same number, 11"):
            graph.follow(Folder(folder, "f", idle=0))
        assert graph.epoch == 2
    with pytest.raises(InvalidOption, match="is no folder"):
        Folder(folder / "none")
    with pytest.raises(InvalidOption, match="idle is -1"):
        Folder(folder, idle=-1)


def test_an_iterator_of_numbered_batches(tmp_path):
    batches, model = stream(fresh_rng(), 12)
    pairs = [(2 * i, columns(batch)) for i, batch in enumerate(batches)]
    asked: list[int] = []

    def from_there(after: int) -> list[tuple[int, object]]:
        asked.append(after)
        return pairs[(after + 2) // 2 :]

    with opened(tmp_path / "store") as graph:
        assert graph.follow(Numbered("i", pairs[:5])) == 5
        assert graph.follow(Numbered("i", iter(pairs[:7]))) == 2

        def broken() -> object:
            yield pairs[7]
            raise OSError("the source broke")

        with pytest.raises(OSError, match="the source broke"):
            graph.follow(Numbered("i", broken()))
        assert graph.offsets == {"i": 14}
    with opened(tmp_path / "store") as graph:
        assert graph.follow(Numbered("i", from_there)) == 4
        assert asked == [14]
        assert_exactly_once(graph, batches, model)
        with pytest.raises(InvalidOption, match="number 3 comes after 3; they must ascend"):
            graph.follow(Numbered("j", [(3, ([1], [2])), (3, ([1], [3]))]))
        with pytest.raises(InvalidOption, match="got list"):
            graph.follow(pairs)
    with DynamicGraph(n_vertices=3) as graph, pytest.raises(InvalidOption, match="no store"):
        graph.follow(Numbered("i", pairs))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (5, "source 'i' is 5; it must be an iterable of pairs"),
        ([([0], [1], [2.0])], r"source 'i' has \(\[0\], \[1\], \[2.0\]\); it must be a pair"),
        ([([0], [1])], r"the number of a batch of source 'i' is \[0\]; it must be a whole number"),
        ([(float("nan"), ([0], [1]))], "is nan; it must be a whole number"),  # such a batch was left out
    ],
)
def test_pairs_that_are_none(pairs, message, tmp_path):
    class Own:
        def batches(self, after):
            return pairs

    with DynamicGraph(n_vertices=3, store=tmp_path / "store") as graph:
        for call in (graph.follow, graph.stream):
            with pytest.raises(InvalidOption, match=message):
                call(Numbered("i", pairs))
            with pytest.raises(InvalidOption, match=r"batches\(\) of a Own|offset is .* the name of a source"):
                call(Own())
        assert graph.epoch == 0


# ---- Kafka -----------------------------------------------------------------------------------------------------------


def decoded(messages: list[bytes]) -> tuple[np.ndarray, ...]:
    """Messages that are lists of columns as JSON."""
    parts = [json.loads(message) for message in messages]
    return tuple(np.concatenate([np.array(part[i]) for part in parts]) for i in range(4))


@pytest.mark.parametrize("n", [N, None])
def test_an_error_names_the_batch(n, tmp_path):
    bad = ([0], [N]) if n else ([0], [2**32])
    with DynamicGraph(n_vertices=n, keys=None, store=tmp_path / "store") as graph:
        with pytest.raises((UnknownVertex, InvalidBatch), match=r"dst\[0\] is .* \(batch 7 of the source 'days'\)$"):
            graph.follow(Numbered("days", [(3, ([0], [1])), (7, bad), (8, ([1], [2]))]))
        assert (graph.epoch, graph.offsets) == (1, {"days": 3})


def test_a_topic(tmp_path):
    kafka = pytest.importorskip("confluent_kafka")
    producer = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "unused"})
    brokers = producer.list_topics(timeout=10).brokers
    config = {"bootstrap.servers": ",".join(f"{one.host}:{one.port}" for one in brokers.values())}
    batches, model = stream(fresh_rng(), 20)

    def produce(some: list[EdgeBatch]) -> None:
        for batch in some:
            value = json.dumps([column.tolist() for column in columns(batch).values()])
            producer.produce("edges", value, partition=0)
        assert producer.flush(10) == 0

    produce(batches[:12])
    source = Kafka("edges", config, decoded, [0], most=5, idle=1)
    with opened(tmp_path / "store") as graph:
        taken = source.batches({})
        first = [next(taken) for _ in range(2)]
        taken.close()
        for place, part in first:  # as far as a program came that was killed
            graph.update(EdgeBatch(*part), offset=place)
        assert graph.offsets["edges/0"] < 12
    produce(batches[12:])
    with opened(tmp_path / "store") as graph:
        n = graph.follow(source)
        assert graph.offsets == {"edges/0": 19}
        assert graph.epoch == n + 2
        offsets, dst, weight = model.csr()
        csr = graph.to_csr()
        for found, wanted in zip((csr.offsets, csr.dst, csr.weight), (offsets, dst, weight), strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert graph.follow(source) == 0
    with pytest.raises(InvalidOption, match="most is 0"):
        Kafka("edges", config, most=0)


class Message:
    """A message as confluent-kafka gives it."""

    def __init__(self, offset: int, value: bytes | None) -> None:
        self._offset, self._value = offset, value

    def offset(self) -> int:
        return self._offset

    def partition(self) -> int:
        return 3

    def error(self) -> None:
        return None

    def value(self) -> bytes | None:
        return self._value


def tables_of(*ends: tuple[int, int] | bytes | None) -> list[Message]:
    """Messages from offset 7 on: tables of an edge each, or other bytes."""
    arrow = pytest.importorskip("pyarrow")
    messages = []
    for offset, end in enumerate(ends, 7):
        if isinstance(end, tuple):
            table = arrow.table({"source": [end[0]], "target": [end[1]]})
            sink = arrow.BufferOutputStream()
            with arrow.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            end = sink.getvalue().to_pybytes()
        messages.append(Message(offset, end))
    return messages


@pytest.mark.parametrize("bad", [None, b"", b"no table", b"\xff" * 40])
def test_a_message_that_cannot_be_decoded(bad, caplog):
    pytest.importorskip("confluent_kafka")
    messages = tables_of((0, 1), bad, (1, 2), bad)
    source = Kafka("edges", {})
    taken = source._decoded(messages)
    assert [(offset, batch["target"].to_pylist()) for offset, batch in [next(taken)]] == [(7, [1])]
    with pytest.raises(ReadError, match="topic 'edges', partition 3, offset 8: "):
        next(taken)
    source = Kafka("edges", {}, on_error="skip")
    with caplog.at_level("WARNING"):
        found = [(offset, batch["target"].to_pylist()) for offset, batch in source._decoded(messages)]
    assert found == [(10, [1, 2])]
    assert source.skipped == 2
    assert "topic 'edges', partition 3, offset 10" in caplog.text
    assert list(source._decoded(tables_of(bad))) == []
    with pytest.raises(InvalidOption, match="on_error is 'stop'"):
        Kafka("edges", {}, on_error="stop")


def test_kafka_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(InvalidOption, match="pip install"):
        Kafka("edges", {})


def test_files_that_are_not_read_are_named_in_the_log(tmp_path, caplog):
    """A file without a number, and one that comes with a number that was passed; each once, and not after a restart."""

    def write(name):
        (tmp_path / name).write_text("source,target\n0,1\n")

    write("part-5.csv")
    batches = Folder(tmp_path, "f", idle=0.5).batches({})
    assert next(batches)[0] == ("f", 5)
    for name in ("new.csv", "2024-05-01.csv", "part-10-of-20.csv"):
        write(name)
    assert [place for place, _ in batches] == [("f", 20)]
    messages = sorted(record.getMessage().removeprefix(f"{tmp_path}/") for record in caplog.records)
    assert messages == [
        "2024-05-01.csv is not read: its number 1 is not above 5, read before",
        "new.csv is not read: its name has no number",
    ]
    caplog.clear()
    assert list(Folder(tmp_path, "f", idle=0).batches({"f": 20})) == []
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/new.csv is not read: its name has no number"
    ]
