"""The benchmarks at tiny sizes: every command runs, what it writes is sound, and a wrong result is caught."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import numpy as np
import pytest
from bench_runs import SMALL, bench, drawn, keys_of, of, splitmix_finaliser
from patience import patience

from mgraph import DynamicGraph
from mgraph.algorithms import ALGORITHMS
from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.structures import Run, create
from mgraph.structures.csr.structure import CsrStructure
from mgraph.structures.gpma_plus.structure import GpmaPlus
from mgraph.structures.mixed_stream import MixedStream
from mgraph.structures.run import sort_batch
from mgraph.worker.shard.fingerprint import edge_hash
from workloads.__main__ import main
from workloads.bench import calls
from workloads.bench.bare_transports import RawNccl
from workloads.bench.exchange import _check
from workloads.bench.harness import Mismatch
from workloads.bench.memory import held_bytes
from workloads.bench.rebuild import Rebuild

# ---- mixed streams -------------------------------------------------------------------------------------------------


def test_execute(tmp_path, capsys):
    options = ["--structure", "gpma+", "--operations", "2000", "--rows", "20", "--repeats", "2", "--runs", "60"]
    lines = bench(tmp_path, "execute", *options)
    for structure in ("csr", "gpma+"):
        for share in (0.03, 0.3):
            ways = of(lines, "stream", structure=structure, queries=share)
            assert [line["way"] for line in ways] == ["execute", "updates", "update and read"]
            assert [line["n"] for line in ways] == [2] * 3
            (runs,) = of(lines, "runs", structure=structure, queries=share)
            assert runs["per_second"] < runs["execute_per_second"]
        rows = of(lines, "rows", structure=structure)
        assert [line["rows"] for line in rows] == [20] * 3
        assert rows[0]["nbytes"] == rows[1]["nbytes"] > 0
        assert all(line["gb_per_s"] > 0 for line in rows)
    assert "the answers those of the runs" in capsys.readouterr().out


def test_execute_catches_a_wrong_answer(monkeypatch, capsys):
    answer = MixedStream.answer

    def forgets_the_updates(self, structure, outcome):
        self._before[:] = 0
        return answer(self, structure, outcome)

    monkeypatch.setattr(MixedStream, "answer", forgets_the_updates)
    options = ["--structure", "csr", "--operations", "900", "--rows", "1", "--repeats", "1", "--runs", "900"]
    assert main(["bench", "execute", *SMALL, *options]) == 2
    assert "csr: the first 900 operations are answered otherwise" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--queries", "0.1,1.5"), ("--queries", "many"), ("--rows", "0")])
def test_execute_refuses_bad_options(option, value, capsys):
    assert main(["bench", "execute", *SMALL, option, value]) == 2
    assert f"{option} is" in capsys.readouterr().err


# ---- updates -------------------------------------------------------------------------------------------------------


def test_updates(tmp_path, capsys):
    options = ["--structure", "gpma+", "--batches", "50,300", "--repeats", "2", "--builds", "2"]
    lines = bench(tmp_path, "updates", *options, "--double", "--double-batch", "2000")
    labels = ["csr", "gpma+", "rebuild (numpy)"]
    assert [line["structure"] for line in of(lines, "build")] == labels
    assert [line["structure"] for line in of(lines, "check", after="batches")] == labels
    assert [line["structure"] for line in of(lines, "check", after="doubled")] == labels
    # 2 sizes, both ops, unsorted and sorted, 3 structures
    assert len(of(lines, "batch")) == 2 * 2 * 2 * 3
    for line in of(lines, "batch") + of(lines, "build") + of(lines, "double"):
        assert 0 < line["min_ms"] <= line["p50_ms"] <= line["p99_ms"] <= line["max_ms"]
        assert line["n"] >= 2
    edges = keys_of(*drawn(0, 8 << 9))
    doubled, goal, batches = set(edges), 2 * len(edges), 0
    assert {line["edges"] for line in of(lines, "build")} == {len(edges)}
    at = 8 << 9
    for size in (50, 300):  # as the benchmark goes: 2 + 2 batches unsorted, as many sorted; inserted, then deleted
        for ordered in (False, True):
            whole = [keys_of(*drawn(at + k * size, at + (k + 1) * size)) for k in range(4)]
            at += 4 * size
            inserted = updated = 0
            for batch in whole:
                inserted, updated = inserted + len(batch - edges), updated + len(batch & edges)
                edges |= batch
            for line in of(lines, "batch", op="insert", size=size, sorted=ordered):
                assert (line["inserted"], line["updated"]) == (inserted, updated)
            edges -= set().union(*whole)
    while len(doubled) < goal:
        doubled |= keys_of(*drawn(at, at + 2000))
        at, batches = at + 2000, batches + 1
    assert {line["n"] for line in of(lines, "double")} == {batches}
    for after, expected in (("batches", edges), ("doubled", doubled)):
        hashed = sum(map(splitmix_finaliser, expected)) % 2**64
        assert {line["hash"] for line in of(lines, "check", after=after)} == {f"{hashed:016x}"}
        assert {line["edges"] for line in of(lines, "check", after=after)} == {len(expected)}
    assert "edges checked against csr" in capsys.readouterr().out


def test_updates_catch_a_structure_that_loses_an_edge(monkeypatch, capsys):
    commit = GpmaPlus.commit

    def loses_one(self, plan):
        counts = commit(self, plan)
        if len(plan.run) == 70:
            key = plan.run.keys[-1:]
            commit(self, self.prepare(Run(key, np.array([-1], np.int8))))
        return counts

    monkeypatch.setattr(GpmaPlus, "commit", loses_one)
    assert main(["bench", "updates", *SMALL, "--batches", "70", "--repeats", "1", "--no-rebuild"]) == 2
    assert "gpma+" in capsys.readouterr().err


def test_updates_catch_a_wrong_hash_alone(monkeypatch, capsys):
    monkeypatch.setattr("workloads.bench.updates.edge_hash", lambda s: 1 if isinstance(s, GpmaPlus) else 2)
    assert main(["bench", "updates", *SMALL, "--batches", "70", "--repeats", "1", "--no-rebuild"]) == 2
    assert "hash of the edges after batches is 0000000000000001, with csr 0000000000000002" in capsys.readouterr().err


def test_rebuild_is_csr():
    rng, n, device = np.random.default_rng(5), 40, Device("cpu", threads=1)
    rebuild, csr = Rebuild(n, device), create("csr", n, device=device)
    for step in range(20):
        batch = EdgeBatch(rng.integers(0, n, 100), rng.integers(0, n, 100), op=-1 if step % 3 == 0 else None)
        assert rebuild.apply(batch) == csr.apply(batch)
        assert rebuild.num_edges == csr.num_edges
        found, right = rebuild.neighbors(np.arange(7, n)), csr.neighbors(np.arange(7, n))
        np.testing.assert_array_equal(found.offsets, right.offsets)
        np.testing.assert_array_equal(found.dst, right.dst)
        assert edge_hash(rebuild) == edge_hash(csr)


# ---- small calls ---------------------------------------------------------------------------------------------------

CALLS = ["bench", "calls", "--device", "cpu", "--vertices", "300", "--edges", "900", "--rounds", "1", "--batches", "90"]


def test_calls(tmp_path, capsys):
    assert main([*CALLS, "--out", str(tmp_path)]) == 0
    (written,) = tmp_path.glob("*.jsonl")
    written_lines = [json.loads(line) for line in written.read_text().splitlines()]
    (pipeline,) = of(written_lines, "pipeline")
    assert (pipeline["batches"], pipeline["edges"]) == (90, 100)
    assert pipeline["batches_per_second"] > 0
    lines = of(written_lines, "call")
    assert [line["call"] for line in lines] == [
        "empty", "insert 1", "insert 100", "delete 1", "has_edges 1", "degrees 1", "neighbors 1", "insert 100,000",
    ]  # fmt: skip
    assert [line["n"] for line in lines] == [100] * 7 + [10]
    assert all(0 < line["p50_us"] <= line["p99_us"] for line in lines)
    assert "in this process" in capsys.readouterr().out


@pytest.mark.parametrize("more", [[], pytest.param(["--many", "200"], marks=pytest.mark.slow)])
def test_calls_on_two_workers(tmp_path, capsys, monkeypatch, more):
    monkeypatch.setattr(calls, "ROUND", 10)
    assert main([*CALLS, "--workers", "2", *more, "--out", str(tmp_path)]) == 0
    (written,) = tmp_path.glob("*.jsonl")
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    if more:
        assert {"threads", "worker 0: threads", "worker 1: threads"} < of(lines, "many calls")[0]["after"].keys()
    else:
        assert {line["workers"] for line in [*of(lines, "call"), *of(lines, "pipeline")]} == {2}
        assert "on 2 workers" in capsys.readouterr().out


def test_calls_catch_a_wrong_answer(monkeypatch, capsys):
    has_edges = DynamicGraph.has_edges
    monkeypatch.setattr(DynamicGraph, "has_edges", lambda self, src, dst: has_edges(self, src, dst) & (len(src) > 1))
    assert main(CALLS) == 2
    assert "single queries answer otherwise" in capsys.readouterr().err


@pytest.mark.slow
def test_first_calls_of_every_algorithm(tmp_path):
    assert main([*CALLS, "--cold", "--out", str(tmp_path)]) == 0
    (written,) = tmp_path.glob("*.jsonl")
    lines = of([json.loads(line) for line in written.read_text().splitlines()], "first call")
    assert [line["call"] for line in lines][-len(ALGORITHMS) :] == [*ALGORITHMS]
    assert all(line["seconds"] >= 0 for line in lines)


def test_many_calls_leave_nothing(tmp_path):
    # In a process of its own, without what earlier tests have left to end.
    command = [sys.executable, "-m", "workloads", *CALLS, "--many", "200", "--out", str(tmp_path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=patience(100))
    (written,) = tmp_path.glob("*.jsonl")
    (line,) = of([json.loads(line) for line in written.read_text().splitlines()], "many calls")
    assert (line["calls"], line["waiting"]) == (200, [])
    assert line["before"]["descriptors"] == line["after"]["descriptors"]


@pytest.mark.slow
def test_many_calls_find_a_leak(monkeypatch, capsys):
    insert, left = DynamicGraph.insert, []
    monkeypatch.setattr(DynamicGraph, "insert", lambda self, *edges: left.append([]) or insert(self, *edges))
    assert main([*CALLS, "--many", "1000"]) == 2
    assert "1000 calls left objects" in capsys.readouterr().err


def test_keys(tmp_path, capsys):
    options = ["--device", "cpu", "--keys", "300", "--batch", "900", "--batches", "2"]
    assert main(["bench", "keys", *options, "--out", str(tmp_path)]) == 0
    (written,) = tmp_path.glob("*.jsonl")
    lines = of([json.loads(line) for line in written.read_text().splitlines()], "keys")
    assert [(line["ids"], line["batch"], line["edges"]) for line in lines] == [
        (ids, *batch) for ids in ("numbers", "int64", "string") for batch in (("new", 300), ("known", 900))
    ]
    assert all((line["bytes_a_key"] > 8) == (line["ids"] != "numbers") for line in lines)
    assert "300 vertices" in capsys.readouterr().out


def test_handover(tmp_path, capsys):
    options = ["--device", "cpu", "--workers", "1", "--vertices", "20000", "--batch", "30000", "--batches", "2"]
    assert main(["bench", "handover", *options, "--repeats", "1", "--out", str(tmp_path)]) == 0
    (written,) = tmp_path.glob("*.jsonl")
    lines = of([json.loads(line) for line in written.read_text().splitlines()], "handover")
    assert [line["way"] for line in lines] == ["shared memory", "comms"]
    for line in lines:
        assert line["workers"] == 1 and line["result_ms"] >= line["least_result_ms"] > 0
        assert line["best_m_edges_per_s"] >= line["again_m_edges_per_s"] > 0 and line["carried_m_edges_per_s"] > 0
    assert "batches of 30,000" in capsys.readouterr().out


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_memory(tmp_path):
    lines = bench(tmp_path, "memory", "--batch", "500", "--growth", "1.5")
    totals = of(lines, "growth")
    assert [line["structure"] for line in totals] == ["csr", "gpma+"]
    for total in totals:
        steps = of(lines, "memory", structure=total["structure"])
        assert len(steps) == total["batches"] + 1 > 2
        assert steps[-1]["edges"] >= 1.5 * steps[0]["edges"] > steps[-2]["edges"]
        for step in steps:
            assert step["bytes_per_edge"] == pytest.approx(step["nbytes"] / step["edges"], abs=1e-4)
            assert step["peak_bytes"] >= step["nbytes"]
        assert total["most_peak_ratio"] == max(step["peak_ratio"] for step in steps[1:])


def test_held_bytes_of_a_plan():
    csr = create("csr", 8)
    csr.insert(EdgeBatch([1, 2, 3], [1, 2, 3]))
    run = sort_batch(csr.device, EdgeBatch([4, 5], [0, 0]), 8, 8)
    plan = csr.prepare(run)
    # outcome, places, shifts; new offsets and destinations, which have room for 5
    assert held_bytes(plan, csr) == 2 + 2 * 8 + 3 * 8 + 9 * 8 + 5 * 4
    empty = csr.prepare(sort_batch(csr.device, EdgeBatch([1], [1]), 8, 8))  # an update of an unweighted edge
    assert held_bytes(empty, csr) == 1 + 8 + 16
    assert isinstance(csr, CsrStructure)


# ---- exchange and scaling, on real workers ---------------------------------------------------------------------------


def test_exchange(tmp_path):
    options = ["--device", "cpu", "--workers", "2", "--exchange", "tcp", "--sizes", "8,100000", "--repeats", "5"]
    assert main(["bench", "exchange", *options, "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("bench-exchange-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {(line["call"], line["bytes"]): line for line in of(lines, "exchange")}
    calls = {(call, n) for call in ("alltoallv", "allgather", "raw tcp alltoall") for n in (8, 100_000)}
    assert found.keys() == calls | {("allreduce", 8), ("superstep", 0)}  # allreduce is for small arrays
    for (call, n), line in found.items():
        assert (line["exchange"], line["ranks"]) == ("tcp", 2)
        assert 0 < line["p50_us"] <= line["p99_us"]
        assert line["gb_per_s_sent"] == pytest.approx(n / line["p50_us"] / 1e3, rel=0.05)
        if call == "raw tcp alltoall":
            assert line["times_raw"] == 1
        assert (line["times_raw"] is None) == (call == "superstep")
    assert lines[-1]["kind"] == "end"


def test_exchange_of_one_worker(tmp_path):
    options = ["--device", "cpu", "--workers", "1", "--sizes", "64", "--repeats", "2"]
    assert main(["bench", "exchange", *options, "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("bench-exchange-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["exchange"] for line in of(lines, "exchange")} == {"loopback"}


def test_exchange_catches_a_wrong_byte():
    class Shard:
        rank = 0

    right = [np.array([1, 2], np.uint8), np.array([3], np.uint8)]
    _check(Shard(), right, right)
    for wrong in ([right[0], np.array([4], np.uint8)], [right[0][:1], right[1]]):
        with pytest.raises(Mismatch, match="arrived wrong"):
            _check(Shard(), wrong, right)


# ---- on GPUs --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [
        ["updates", "--structure", "gpma+,rebuild", "--batches", "50,3000", "--repeats", "2", "--double"],
        ["bfs", "--symmetric", "--roots", "2", "--degree-order"],
        ["bfs", "--directed", "--reverse", "--roots", "2", "--parts", "3"],
        ["pagerank", "--directed", "--uniform", "--iterations", "3"],
        ["algorithms", "--names", "components,cores,triangles,strong", "--symmetric", "--repeats", "2"],
        ["memory", "--batch", "500"],
    ],
)
def test_on_a_gpu(tmp_path, options):
    assert main(["bench", options[0], *SMALL, *options[1:], "--device", "cuda", "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("bench-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[1]["device"] == "cuda:0"
    assert lines[-1]["kind"] == "end"
    if options[0] == "updates":
        edges = keys_of(*drawn(0, 8 << 9))
        assert {line["edges"] for line in of(lines, "build")} == {len(edges)}


@pytest.mark.multigpu(2)
@pytest.mark.timeout(300)
def test_on_two_gpus(tmp_path):
    options = ["--device", "cuda", "--workers", "2", "--exchange", "peer,ucx", "--sizes", "8,1000000", "--repeats", "5"]
    assert main(["bench", "exchange", *options, "--out", str(tmp_path)]) == 0
    options = ["--gpus", "1,2", "--device", "gpu", "--scale", "9", "--batch", "500", "--batches", "2", "--roots", "2"]
    assert main(["scaling", *options, "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("bench-exchange-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    raw = {(line["exchange"], line["call"]) for line in of(lines, "exchange") if line["call"].startswith("raw ")}
    nccl = {("peer", "raw nccl alltoall")} if RawNccl.installed() else set()
    assert raw == {("ucx", "raw ucx alltoall")} | nccl


# ---- NetworkX ------------------------------------------------------------------------------------------------------


def test_networkx(tmp_path, monkeypatch, capsys):
    module = importlib.import_module("workloads.bench.networkx")
    lines = of(bench(tmp_path, "networkx", "--repeats", "1", "--scales", "6,7"), "networkx")
    assert [(line["scale"], line["function"]) for line in lines] == [(s, f) for s in (6, 7) for f in module.FUNCTIONS]
    assert all(min(line[f"{who}_ms"] for who in ("networkx", "mgraph", "live")) > 0 for line in lines)
    find = module.FUNCTIONS["triangles"].call

    def wrong(nx, graph, backend):
        found = find(nx, graph, backend)
        return found if backend == "networkx" else {node: count + 1 for node, count in found.items()}

    monkeypatch.setattr(module, "FUNCTIONS", {"triangles": module._Function(wrong)})
    assert main(["bench", "networkx", "--device", "cpu", "--scales", "6", "--repeats", "1"]) == 2
    assert "triangles: node" in capsys.readouterr().err


def test_networkx_that_does_not_know_the_backend(monkeypatch, capsys):
    import networkx as nx
    from networkx.utils.configs import Config

    monkeypatch.setattr(nx.config, "backends", Config())
    assert main(["bench", "networkx", "--device", "cpu", "--scales", "6"]) == 2
    assert "does not know the backend mgraph" in capsys.readouterr().err


# ---- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["bench", "updates", *SMALL, "--structure", "treap"], "treap"),
        (["bench", "updates", *SMALL, "--batches", "ten"], "'ten'"),
        pytest.param(["bench", "updates", *SMALL, "--batches", "0"], "'0'", marks=pytest.mark.slow),
        pytest.param(["bench", "updates", *SMALL, "--repeats", "0"], "--repeats is 0", marks=pytest.mark.slow),
        pytest.param(["bench", "updates", *SMALL, "--resident", "-1"], "--resident is -1", marks=pytest.mark.slow),
        pytest.param(["bench", "updates", "--device", "cpu", "--scale", "99"], "scale is 99", marks=pytest.mark.slow),
        pytest.param(["bench", "updates", "--device", "tpu"], "tpu", marks=pytest.mark.slow),
        pytest.param(
            ["bench", "updates", "--device", "cpu", "--threads", "0"], "--threads is 0", marks=pytest.mark.slow
        ),
        (["bench", "bfs", *SMALL, "--roots", "0"], "--roots is 0"),
        pytest.param(["bench", "bfs", *SMALL, "--parts", "0"], "--parts is 0", marks=pytest.mark.slow),
        pytest.param(["bench", "pagerank", *SMALL, "--iterations", "0"], "--iterations is 0", marks=pytest.mark.slow),
        pytest.param(["bench", "algorithms", *SMALL, "--repeats", "0"], "--repeats is 0", marks=pytest.mark.slow),
        pytest.param(["bench", "memory", *SMALL, "--growth", "0.5"], "--growth is 0.5", marks=pytest.mark.slow),
        pytest.param(["bench", "calls", "--device", "cpu", "--rounds", "0"], "--rounds is 0", marks=pytest.mark.slow),
        pytest.param(["bench", "calls", "--device", "cpu", "--many", "0"], "--many is 0", marks=pytest.mark.slow),
        pytest.param(
            ["bench", "calls", "--device", "cpu", "--cold", "--workers", "1"],
            "--cold needs this process",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["bench", "handover", "--device", "cpu", "--repeats", "0"], "--repeats is 0", marks=pytest.mark.slow
        ),
        pytest.param(["bench", "exchange", "--device", "cpu", "--sizes", "x"], "'x'", marks=pytest.mark.slow),
        (["bench", "exchange", "--device", "cpu", "--exchange", "tcp,nccl"], "'nccl'"),
        pytest.param(["scaling", "--scaling", "sideways"], "sideways", marks=pytest.mark.slow),
        (["scaling", "--gpus", "1,three"], "three"),
        pytest.param(["scaling", "--measure", "analytics,heat"], "heat", marks=pytest.mark.slow),
        pytest.param(["scaling", "--device", "cpu", "--batch", "0"], "--batch is 0", marks=pytest.mark.slow),
    ],
)
def test_a_mistake_is_one_line(capsys, options, named):
    assert main(options) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert named in said


def test_a_benchmark_with_a_gpu_asked_for_and_none(capsys):
    from mgraph.device import gpu_count

    index = gpu_count()
    assert main(["bench", "updates", "--device", f"cuda:{index}"]) == 2
    assert f"GPU {index} was asked for" in capsys.readouterr().err
