"""The GAP benchmark: graphs edge for edge, verified kernels, wrong results that are caught, peers and gapbs beside."""

from __future__ import annotations

import itertools
import json
import stat
import sys
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest

from mgraph import DynamicGraph
from mgraph.device import Device
from mgraph.errors import CapacityError, InvalidOption, MgraphError
from workloads.__main__ import main
from workloads.bench.harness import Mismatch
from workloads.gap import graphs, kernels, verify
from workloads.gap.gapbs import write_serialized
from workloads.gap.graphs import GapGraph, generate, shuffled, sources

CPU = Device("cpu", threads=1)
SMALL = ["--device", "cpu", "--scale", "7", "--degree", "4"]


def gap(tmp_path, *options):
    assert main(["gap", *SMALL, *options, "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("bench-gap-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_edges(n, edges):
    src, dst, weight = (np.array(c) for c in zip(*sorted((min(u, v), max(u, v), w) for u, v, w in edges), strict=True))
    return GapGraph.of(n, src.astype(np.uint32), dst.astype(np.uint32), weight.astype(np.float32), CPU)


# ---- the graphs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "first", "polynomial"),
    [
        (7, [6, 2, 4, 3, 0, 1, 5], 386063846),  # odd: two steps a draw
        (1024, [536, 270, 679, 1021, 162, 435, 686, 60], 512694902),  # even: one step first
        (131072, [114281, 12600, 2911, 69611, 54011, 42696, 101859, 23113], 710923135),  # a draw a step
    ],
)
def test_shuffle_is_the_library_s(n, first, polynomial):
    """Against ``std::shuffle`` of g++ 12 with ``std::mt19937(27491095)``."""
    found = shuffled(n, CPU)
    assert found[: len(first)].tolist() == first
    value = 0
    for x in found.tolist():
        value = (value * 31 + x) % 1_000_000_007
    assert value == polynomial


@pytest.mark.parametrize("n", [1, 2, 3, 4, 255])
def test_shuffle_is_a_permutation(n):
    assert sorted(shuffled(n, CPU)) == list(range(n))


@pytest.mark.parametrize(
    ("scale", "degree", "edges", "polynomial"),
    [(10, 16, 10496, 4611800504575331228), (16, 8, 477932, 7401676166907582661)],
)
def test_kron_is_gapbs_s(scale, degree, edges, polynomial):
    """Against an edge list drawn with the C++ library, the least weight of equal edges kept.

    That ``-g10`` has 10496 undirected edges is also what gapbs prints and tests.
    """
    graph = generate("kron", scale, degree, CPU)
    assert len(graph) == edges
    if scale > 10:
        (keys,) = graph.parts
        assert (np.diff(keys >> np.uint64(8)) > 0).all()
        return
    value = 0
    for u, v, w in zip(*(column.tolist() for column in graph.columns()), strict=True):
        value = (value * 1_000_003 + u * 31 + v * 17 + int(w)) % 2**64
    assert value == polynomial


def test_graphs_do_not_depend_on_threads():
    for kind in ("kron", "urand"):
        one, two = (generate(kind, 15, 16, Device("cpu", threads=k)) for k in (1, 2))  # two blocks of draws
        assert (one.parts[0] == two.parts[0]).all()
        src, dst, weight = one.columns()
        assert (src < dst).all()
        assert set(np.unique(weight)) == set(range(1, 256))


def test_urand_is_gapbs_s():
    """Against NumPy's twisters, a block of edges each."""
    ends, weights = [], []
    for block in range(2):
        words = np.random.RandomState(27491095 + block).randint(0, 2**32, 2 << 18, np.uint32)
        ends.append(words.reshape(-1, 2) % 2**15)
        weights.append(words[: 1 << 18] % 255)
    low, high = np.sort(np.concatenate(ends).astype(np.uint64), axis=1).T
    keys = np.sort((low << np.uint64(15) | high) << np.uint64(8) | np.concatenate(weights))
    _, first = np.unique(keys >> np.uint64(8), return_index=True)
    keys = keys[first]
    keys = keys[keys >> np.uint64(23) != keys >> np.uint64(8) & np.uint64(2**15 - 1)]
    np.testing.assert_array_equal(generate("urand", 15, 16, CPU).parts[0], keys)


def test_weights_that_are_drawn_again(monkeypatch):
    """A block in whose words one comes that is refused, of which there are two in 2**32: NumPy's words are used."""
    (want,) = generate("kron", 15, 16, CPU).parts
    kernels_of = graphs.load

    def refusing(device, file):
        def draw(blocks, again, keys, **fields):
            kernels_of(device, file).DrawEdges(blocks, again=again, keys=keys, **fields)
            again[:] = 1
            keys |= np.uint64(255)

        return SimpleNamespace(DrawEdges=draw)

    monkeypatch.setattr(graphs, "load", refusing)
    np.testing.assert_array_equal(generate("kron", 15, 16, CPU).parts[0], want)


def test_parts_are_the_same_graph(monkeypatch):
    for kind in ("kron", "urand"):
        (whole,) = generate(kind, 15, 16, CPU).parts
        monkeypatch.setattr(graphs, "PART", 100_000)  # two pieces are drawn, and cut into five or more parts
        parts = generate(kind, 15, 16, CPU).parts
        monkeypatch.undo()
        assert len(parts) > 4
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_sources_have_edges():
    graph = generate("kron", 8, 1, CPU)
    picked = list(itertools.islice(sources(graph), 300))
    assert picked == list(itertools.islice(sources(graph), 300))
    assert (graph.degrees[picked] > 0).all()
    assert (graph.degrees == 0).any()


@pytest.mark.parametrize(
    ("given", "says"), [(("road", 8, 1), "road"), (("kron", 28, 1), "scale is 28"), (("kron", 8, 0), "degree is 0")]
)
def test_bad_graphs(given, says):
    with pytest.raises(InvalidOption, match=says):
        generate(*given, CPU)


# ---- the command ---------------------------------------------------------------------------------------------------


def test_all_kernels_are_verified(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("workloads.gap.command.INSERTED", 70)
    monkeypatch.setattr(graphs, "PART", 100)
    monkeypatch.setattr(graphs, "BLOCK", 100)
    lines = gap(tmp_path, "--trials", "2", "--verify", "2", "--peer", "scipy,networkx")
    ours = [line for line in lines if line["kind"] == "kernel" and line["who"] == "mgraph"]
    assert [(line["graph"], line["kernel"]) for line in ours] == [
        (kind, kernel.name) for kind in ("kron", "urand") for kernel in kernels.KERNELS
    ]
    assert all(line["n"] == line["verified"] == 2 and 0 < line["min_ms"] <= line["mean_ms"] for line in ours)
    peers = {(line["who"], line["kernel"]) for line in lines if line["kind"] == "kernel"} - {("mgraph", None)}
    assert {name for who, name in peers if who == "networkx"} == {k.name for k in kernels.KERNELS}
    assert {name for who, name in peers if who == "scipy"} == {k.name for k in kernels.KERNELS} - {"bc"}
    out = capsys.readouterr().out
    assert "networkx" in out
    assert "shortest paths" in out
    assert main(["report", "--results", str(tmp_path.parent), "--hardware", tmp_path.name, "--only", "bench-gap"]) == 0
    assert "| urand | betweenness |" in capsys.readouterr().out


def test_the_report_has_a_table_a_structure(tmp_path, capsys):
    for structure in ("csr", "gpma+"):
        gap(tmp_path / "some-cpu" / structure, "--trials", "1", "--kernel", "cc", "--structure", structure)
    for path in (tmp_path / "some-cpu").glob("*/*.jsonl"):
        path.rename(tmp_path / "some-cpu" / f"{path.parent.name}.jsonl")
    capsys.readouterr()
    assert main(["report", "--results", str(tmp_path), "--only", "bench-gap"]) == 0
    out = capsys.readouterr().out
    assert "structure csr" in out
    assert "structure gpma+" in out


def test_rules():
    assert {k.name: k.trials for k in kernels.KERNELS} == {"bfs": 64, "sssp": 64, "pr": 16, "cc": 16, "bc": 16, "tc": 3}
    (bc,) = (k for k in kernels.KERNELS if k.name == "bc")
    assert bc.next_sources(iter([5, 7, 5, 5, 9, 7, 2, 8])) == [5, 7, 9, 2]
    with pytest.raises(InvalidOption, match="4 different sources"):
        bc.next_sources(itertools.cycle([1, 2, 3]))


FAKE = """#!{python}
import numpy, sys
name, args = sys.argv[0].rsplit("/", 1)[1], sys.argv[1:]
body = open(args[args.index("-f") + 1], "rb").read()
m, n = numpy.frombuffer(body, "<i8", 2, 1)
offsets = numpy.frombuffer(body, "<i8", n + 1, 17)
wide = 2 if name == "sssp" else 1
arcs = numpy.frombuffer(body, "<i4", offset=17 + 8 * (n + 1)).reshape(-1, wide)
assert body[0] == 0 and offsets[-1] == m == len(arcs) and arcs[:, 0].max() < n
assert {{"bc": "-i", "pr": "-t", "sssp": "-d"}}.get(name, "-n") in args
for k in range(int(args[args.index("-n") + 1])):
    print(f"Trial Time:          {{0.002 + k / 1000:.5f}}")
print("Average Time:        9")
sys.exit(name == {fails!r})
"""


def programs(folder, fails=""):
    for kernel in kernels.KERNELS:
        path = folder / kernel.name
        path.write_text(FAKE.format(python=sys.executable, fails=fails))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return ["--gapbs", str(folder)]


def test_gapbs_beside_ours(tmp_path):
    """Programs that read the file and print as gapbs's do."""
    options = ["--graph", "kron", "--kernel", "pr,bc,sssp", "--trials", "3", *programs(tmp_path)]
    lines = gap(tmp_path, *options)
    theirs = [line for line in lines if line["kind"] == "kernel" and line["who"] == "gapbs"]
    assert [line["kernel"] for line in theirs] == ["pr", "bc", "sssp"]
    assert all(line["mean_ms"] == 3.0 and line["n"] == 3 for line in theirs)


def test_gapbs_that_fails(tmp_path):
    options = [*SMALL, "--graph", "urand", "--kernel", "cc", "--trials", "1", *programs(tmp_path, fails="cc")]
    assert main(["gap", *options]) == 2
    (tmp_path / "tc").unlink()
    assert main(["gap", *options[:-2], "--kernel", "tc", *options[-2:]]) == 2


def test_serialized_rows(tmp_path):
    graph = of_edges(4, [(0, 2, 5), (1, 2, 7), (0, 1, 9)])
    write_serialized(graph, tmp_path / "a.wsg", True)
    body = (tmp_path / "a.wsg").read_bytes()
    assert np.frombuffer(body, "<i8", 2 + 5, 1).tolist() == [6, 4, 0, 2, 4, 6, 6]
    assert np.frombuffer(body, "<i4", offset=57).tolist() == [1, 9, 2, 5, 0, 9, 2, 7, 0, 5, 1, 7]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--peer", "igraph"], "igraph"),
        (["--graph", "web"], "web"),
        (["--kernel", "apsp"], "apsp"),
        (["--trials", "0"], "trials is 0"),
        (["--gapbs", "/nowhere"], "/nowhere"),
    ],
)
def test_bad_options(options, says, capsys):
    assert main(["gap", *SMALL, *options]) == 2
    assert says in capsys.readouterr().err


# ---- verifiers: what is wrong is found -----------------------------------------------------------------------------


@pytest.fixture
def found():
    """A small graph with two components, and what each kernel finds in it."""
    edges = [(0, 1, 3), (1, 2, 4), (0, 2, 9), (2, 3, 1), (3, 4, 2), (4, 5, 2), (2, 5, 8), (6, 7, 1)]
    graph = of_edges(9, edges)
    with DynamicGraph(n_vertices=9, directed=False, weighted=True, device="cpu") as g:
        g.insert(*graph.columns())
        yield graph, g


def test_verifiers_catch_what_is_wrong(found):
    graph, g = found
    tree = g.bfs(0, predecessors=True)
    distance, before = tree.to_numpy(), tree.predecessors.to_numpy()
    assert verify.bfs(graph, 0, distance, before) == ""
    for at, value, says in ((4, 2, "predecessor"), (6, 4, "spans"), (0, 1, "source")):
        other = distance.copy()
        other[at] = value
        assert says in verify.bfs(graph, 0, other, before)
    for at, value, says in (
        (3, 1, "neighbour"),
        (4, 2, "level"),
        (5, -1, "other way"),
        (7, 6, "other way"),
        (0, 1, "other way"),
    ):
        other = before.copy()
        other[at] = value
        assert says in verify.bfs(graph, 0, distance, other)

    ways = g.sssp(0).to_numpy()
    assert ways[:6].tolist() == [0, 3, 7, 8, 10, 12]
    assert verify.sssp(graph, 0, ways) == ""
    for at, value, says in ((4, 11, "shorter"), (5, 11, "no path"), (7, 5, "shorter"), (8, 5, "no path")):
        other = ways.copy()
        other[at] = value
        assert says in verify.sssp(graph, 0, other)

    ranks = g.pagerank(tol=1e-6, dangling="drop").to_numpy()
    assert verify.pr(graph, ranks, 1e-4) == ""
    assert "changes the ranks" in verify.pr(graph, ranks * 1.01, 1e-4)

    labels, reached = g.connected_components().to_numpy(), np.zeros(9, np.int32)
    assert verify.cc(graph, labels, reached) == ""
    assert "joins" in verify.cc(graph, np.where(labels == 6, [0] * 7 + [6, 0], labels), reached)
    assert "not connected" in verify.cc(graph, labels, reached - 1)

    given = [0, 4, 6]
    sums = np.zeros(9)
    plain = nx.Graph(zip(*(column.tolist() for column in graph.columns()[:2]), strict=True))
    for s, v in itertools.product(given, range(9)):
        pairs = nx.betweenness_centrality_subset(plain, [s], [t for t in plain if t != s])
        sums[v] += 2 * pairs.get(v, 0) * (v != s)
    assert verify.bc(graph, given, sums) == ""
    assert "differs" in verify.bc(graph, given, sums + np.eye(9)[2])

    counts = g.triangles()
    assert verify.tc(graph, counts.to_numpy(), counts.total) == ""
    assert "third" in verify.tc(graph, counts.to_numpy(), 2)
    assert "by the edges" in verify.tc(graph, np.array([3] + [0] * 8), 1)


def test_a_wrong_result_stops_the_command(monkeypatch):
    monkeypatch.setattr(verify, "tc", lambda *a: "it is wrong")
    assert main(["gap", *SMALL, "--graph", "kron", "--kernel", "tc", "--trials", "1"]) == 2
    assert issubclass(Mismatch, MgraphError)


@pytest.mark.gpu
def test_on_a_gpu(tmp_path):
    lines = gap(tmp_path, "--device", "cuda", "--trials", "2", "--verify", "2", "--ids", "degree")
    assert sum(line["kind"] == "kernel" and line["verified"] == 2 for line in lines) == 12
    cpu, gpu = (generate("kron", 16, 4, device) for device in (CPU, Device("cuda")))
    np.testing.assert_array_equal(gpu.device.to_host(gpu.parts[0]), cpu.parts[0])


def test_what_was_measured_before_memory_ran_out_is_kept(tmp_path, monkeypatch, capsys):
    def without_memory(graph, *args):
        raise CapacityError("9 bytes are needed")

    monkeypatch.setattr(DynamicGraph, "sssp", without_memory)
    assert (
        main(["gap", *SMALL, "--graph", "kron", "--kernel", "bfs,sssp", "--trials", "2", "--out", str(tmp_path)]) == 2
    )
    assert "9 bytes are needed" in capsys.readouterr().err
    (path,) = tmp_path.glob("bench-gap-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["kernel"] for line in lines if line["kind"] == "kernel"] == ["bfs"]
    assert lines[-1] == {"kind": "end", "interrupted": True}
