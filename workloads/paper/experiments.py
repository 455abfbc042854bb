"""The papers' experiments, each a function of a run, a stream and its parameters.

Every structure gets the same batches, on the device, and times are between two synchronisations. The outcome of a batch
is known beforehand, because a stream's edges are unique: all are inserted, or all are deleted. Answers and results of
algorithms must equal those of the first structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from mgraph.algorithms import warm
from mgraph.algorithms.centrality.pagerank.program import run as pagerank
from mgraph.algorithms.communities.components.program import run as components
from mgraph.algorithms.density.triangles.program import run as triangles
from mgraph.algorithms.paths.bfs.program import run as bfs
from mgraph.batch import EdgeBatch
from mgraph.device import Array
from mgraph.exchange import Loopback
from mgraph.partition import Partition
from mgraph.structures import Counts, Structure, create
from mgraph.structures.hornet import Hornet
from mgraph.worker.shard.fingerprint import edge_hash
from mgraph.worker.shard.shard import Shard, ShardSpec
from workloads.bench.harness import Bench, Mismatch, short
from workloads.paper.streams import Stream

__all__ = [
    "Run",
    "analytics",
    "batches",
    "build",
    "loading",
    "queries",
    "slides",
    "triangle_counts",
    "vertices",
    "windows",
]

WARM = 2  #: warm-up batches of each size
GROWN = 1.05  #: growth of the structure's size by which a batch counts as growing


class Run:
    """Structures of a run, its clock, and its measurements.

    Parameters
    ----------
    bench : Bench
    structures : sequence of str
        The paper's own first.
    """

    def __init__(self, bench: Bench, structures: Sequence[str]) -> None:
        self.bench, self.names = bench, structures
        self.repeats, self.divide = bench.options.repeats, bench.options.divide
        self._oracle: dict[Any, Any] = {}

    def sizes(self, asked: Sequence[int], room: int) -> list[int]:
        """Return the papers' batch sizes, divided, whose batches all fit into `room` edges; at least one."""
        most = max(room // (WARM + self.repeats), 1)
        return [size for size in self.divided(asked) if size <= most] or [most]

    def divided(self, asked: Sequence[int]) -> list[int]:
        """Return the papers' sizes, divided, each once and at least 1."""
        return list(dict.fromkeys(max(size // self.divide, 1) for size in asked))

    def add(self, stream: Stream, what: str, structure: str, value: float, **more: Any) -> None:
        """Record a value."""
        rounded = float(f"{value:.4g}")
        self.bench.add("measured", graph=stream.name, what=what, structure=structure, value=rounded, **more)

    def add_ms(self, stream: Stream, what: str, structure: str, ms: list[float], **more: Any) -> None:
        """Record the median of some times, with their mean and number."""
        more = {"mean": float(f"{np.mean(ms):.4g}"), "n": len(ms), **more}
        self.add(stream, f"{what}, ms", structure, float(np.median(ms)), **more)

    def same(self, what: Any, structure: str, value: Any) -> None:
        """Raise `Mismatch` if a value, or array, differs from the first structure's."""
        first = self._oracle.setdefault(what, value)
        if not bool((first == value).all() if hasattr(value, "all") else first == value):
            raise Mismatch(f"{structure}: {what} is {value}, and with {self.names[0]} it is {first}")

    def near(self, what: Any, structure: str, value: Array) -> None:
        """Raise `Mismatch` if an array is 1e-4 or more from the first structure's, by L1."""
        apart = float(abs(self._oracle.setdefault(what, value) - value).sum())
        if not apart < 1e-4:
            raise Mismatch(f"{structure}: {what} is {apart:.3g} from that with {self.names[0]}")

    def empty(self, name: str, stream: Stream) -> Structure:
        """Create a structure."""
        return create(name, stream.n_vertices, device=self.bench.device)

    def filled(self, name: str, stream: Stream, n: int) -> Structure:
        """Create a structure with the stream's first n edges."""
        structure = self.empty(name, stream)
        structure.build(EdgeBatch(*stream.between(0, n)))
        return structure

    def each(self, stream: Stream, n: int) -> Iterator[tuple[str, Structure]]:
        """Yield every structure in turn with the first n edges.

        Their final edges must be equal.
        """
        for name in self.names:
            structure = self.filled(name, stream, n)
            yield name, structure
            final = (structure.num_edges, f"{edge_hash(structure):016x}")
            self.same(("edges and hash in the end", stream.name), name, final)
            del structure
            self.bench.free()

    def apply(self, structure: Structure, batch: EdgeBatch, expected: Counts, name: str) -> float:
        """Return the milliseconds of a batch.

        Raises `Mismatch` if its counts are wrong.
        """
        seconds, counts = self.bench.time(partial(structure.apply, batch))
        if counts != expected:
            raise Mismatch(f"{name}: a batch gave {counts}, and {expected} was right")
        return seconds * 1e3


def _slide(stream: Stream, at: int, window: int, size: int) -> EdgeBatch:
    """Return a slide of the window: delete its oldest edges, insert the stream's next ones."""
    xp = stream.device.xp
    old, new = stream.between(at - window, at - window + size), stream.between(at, at + size)
    src, dst = (xp.concatenate(ends) for ends in zip(old, new, strict=True))
    op = stream.device.full(2 * size, 1, np.int8)
    op[:size] = -1
    return EdgeBatch(src, dst, op=op)


def slides(run: Run, stream: Stream, sizes: Sequence[int]) -> None:
    """Measure the latency of a slide of a window over half the stream, by the size of the slide."""
    window = len(stream) // 2
    slide_sizes = run.sizes(sizes, len(stream) - window)
    # Slide through the stream.
    for name in run.names:
        for size in slide_sizes:
            structure, ms = run.filled(name, stream, window), []
            for at in range(window, window + size * (WARM + run.repeats), size):
                batch = _slide(stream, at, window, size)
                ms.append(run.apply(structure, batch, Counts(inserted=size, deleted=size), name))
            run.add_ms(stream, f"slide by {short(size)}", name, ms[WARM:])
            run.same(("hash after slides", stream.name, size), name, edge_hash(structure))
            del structure
        run.bench.free()


# ---- algorithms on a window ------------------------------------------------------------------------------------------


def _shard(run: Run, name: str, stream: Stream, n: int, directed: bool = True) -> Shard:
    """Build a worker's shard of the stream's first n edges.

    Without `directed`, each edge goes both ways.
    """
    spec = ShardSpec("paper", 0, Partition.equal(stream.n_vertices, 1), name, directed, False, False)
    shard = Shard(spec, Loopback(), run.bench.device)
    shard.out_edges.build(_mirrored(stream, 0, n) if not directed else EdgeBatch(*stream.between(0, n)))
    shard.num_edges = shard.out_edges.num_edges
    warm(shard)
    return shard


def _mirrored(stream: Stream, start: int, stop: int) -> EdgeBatch:
    concatenate = stream.device.xp.concatenate
    src, dst = stream.between(start, stop)
    return EdgeBatch(concatenate([src, dst]), concatenate([dst, src]))


def _bfs(shard: Shard, root: int) -> Array:
    return bfs(shard, root)[0]["distance"]


def _components(shard: Shard, root: int) -> Array:
    return components(shard)[0]["component"]


def _pagerank(shard: Shard, root: int) -> Array:
    return pagerank(shard, tol=1e-3)[0]["rank"]


def _triangles(shard: Shard, root: int) -> Array:
    return triangles(shard)[0]["triangles"]


ALGORITHMS: dict[str, Callable[[Shard, int], Array]] = {
    "BFS": _bfs,
    "components": _components,
    "PageRank to 1e-3": _pagerank,
    "triangles": _triangles,
}


def _timed(run: Run, shard: Shard, algorithm: str, name: str, root: int, key: Any) -> float:
    """Return the milliseconds of an algorithm.

    Compares its result with the first structure's.
    """
    seconds, values = run.bench.time(partial(ALGORITHMS[algorithm], shard, root))
    check = run.near if algorithm.startswith("PageRank") else run.same
    check((algorithm, key), name, values)
    return seconds * 1e3


def windows(run: Run, stream: Stream, shares: Sequence[float], algorithms: Sequence[str]) -> None:
    """Measure slides by shares of the stream, and the algorithms after each."""
    window = len(stream) // 2
    for share in shares:
        size = max(int(share * len(stream)), 1)
        slid = min(run.repeats, (len(stream) - window) // size)
        # Build the shard of a window, and compile.
        for name in run.names:
            shard, update = _shard(run, name, stream, window), []
            times_ms: dict[str, list[float]] = {algorithm: [] for algorithm in algorithms}
            for algorithm in algorithms:
                ALGORITHMS[algorithm](shard, 0)  # compiles

            # Slide, then run each algorithm.
            for number, at in enumerate(range(window, window + slid * size, size)):
                batch, root = _slide(stream, at, window, size), int(stream.src[at])
                update.append(run.apply(shard.out_edges, batch, Counts(inserted=size, deleted=size), name))
                shard.num_edges = shard.out_edges.num_edges
                for algorithm in algorithms:
                    ms = _timed(run, shard, algorithm, name, root, (stream.name, share, number))
                    times_ms[algorithm].append(ms)

            # Record the latencies.
            for what, spent in (("update", update), *times_ms.items()):
                run.add_ms(stream, f"window slid by {share:.2%}: {what}", name, spent)
            del shard
            run.bench.free()


def analytics(run: Run, stream: Stream, algorithms: Sequence[str]) -> None:
    """Measure algorithms on the whole stream, undirected."""
    for name in run.names:
        shard, root = _shard(run, name, stream, len(stream), directed=False), int(stream.src[0])
        for algorithm in algorithms:
            ALGORITHMS[algorithm](shard, root)
            ms = [_timed(run, shard, algorithm, name, root, stream.name) for _ in range(min(run.repeats, 5))]
            run.add_ms(stream, algorithm, name, ms)
        del shard
        run.bench.free()


def triangle_counts(run: Run, stream: Stream, size: int, times: int) -> None:
    """Measure a batch of inserts and a count of all triangles, in turns: the total times."""
    size_of_batch = min(run.divided([size])[0], len(stream) // (2 * times))
    # Build all but the batches.
    for name in run.names:
        begin = len(stream) - times * size_of_batch
        shard, insert, count = _shard(run, name, stream, begin, directed=False), 0.0, 0.0
        _triangles(shard, 0)

        # Insert and count in turns.
        for turn in range(times):
            at = begin + turn * size_of_batch
            seconds, _ = run.bench.time(partial(shard.out_edges.apply, _mirrored(stream, at, at + size_of_batch)))
            shard.num_edges = shard.out_edges.num_edges
            insert += seconds * 1e3
            count += _timed(run, shard, "triangles", name, 0, (stream.name, turn))
        run.add(stream, f"{times} times {short(size_of_batch)} inserts: all inserts, ms", name, insert)
        run.add(stream, f"{times} times {short(size_of_batch)} inserts: all counts of triangles, ms", name, count)
        del shard
        run.bench.free()


# ---- batches, builds, memory -----------------------------------------------------------------------------------------


def batches(run: Run, stream: Stream, sizes: Sequence[int]) -> None:
    """Measure batches of inserts onto half the stream, and of the same as deletes: latencies and rates."""
    resident = len(stream) // 2
    for name, structure in run.each(stream, resident):
        for size in run.sizes(sizes, len(stream) - resident):
            # Insert each batch, then delete each.
            for op, expected in ((1, Counts(inserted=size)), (-1, Counts(deleted=size))):
                ms = []
                for at in range(resident, resident + size * (WARM + run.repeats), size):
                    batch = EdgeBatch(*stream.between(at, at + size), op=None if op > 0 else op)
                    ms.append(run.apply(structure, batch, expected, name))
                rate = size * run.repeats / sum(ms[WARM:]) / 1e3
                what = f"{'insert' if op > 0 else 'delete'} {short(size)}"
                run.add_ms(stream, what, name, ms[WARM:], million_per_second=round(rate, 3))


def build(run: Run, stream: Stream) -> None:
    """Measure an empty structure, the build of all edges at once, and bytes per edge; hornet's fill like its paper."""
    # An empty structure.
    for name in run.names:
        run.filled(name, stream, min(len(stream), 1000))  # compiles
        began = run.bench.times(partial(run.empty, name, stream), 3)
        run.add_ms(stream, "make it empty", name, [seconds * 1e3 for seconds in began])

        # The build.
        ms = []
        for _ in range(min(run.repeats, 3)):
            structure = run.empty(name, stream)
            ms.append(run.apply(structure, EdgeBatch(stream.src, stream.dst), Counts(inserted=len(stream)), name))
        run.add_ms(stream, f"build {short(len(stream))} edges", name, ms)
        run.add(stream, "bytes an edge, built", name, structure.nbytes / len(stream))

        # Hornet's fill.
        if isinstance(structure, Hornet):
            fill = structure.fill()
            for what in ("blocks", "arrays"):
                run.add(stream, f"share of {what} in use", name, getattr(fill, what))

        # Compare the edges.
        run.same(("hash of all edges", stream.name), name, edge_hash(structure))
        del structure
        run.bench.free()


def loading(run: Run, stream: Stream, sizes: Sequence[int]) -> None:
    """Load the whole stream in batches, from an empty graph: rate, latencies, and the batches in which memory grew."""
    most = max(len(stream) // 20, 1)
    for size in dict.fromkeys(min(size, most) for size in run.divided(sizes)):
        what = f"load in batches of {short(size)}"
        # Apply the batches, and note which ones grew the structure.
        for name in run.names:
            structure, spent, grew = run.empty(name, stream), [], []
            for at in range(0, len(stream) - size + 1, size):
                before, batch = structure.nbytes, EdgeBatch(*stream.between(at, at + size))
                spent.append(run.apply(structure, batch, Counts(inserted=size), name))
                grew.append(structure.nbytes > GROWN * before)

            # Record rate and latencies; batches that grow also apart.
            ms, large = np.array(spent[WARM:]), np.array(grew[WARM:])
            run.add(stream, f"{what}: million edges a second", name, size * len(ms) / float(ms.sum()) / 1e3)
            run.add_ms(stream, f"{what}: median", name, ms.tolist())
            run.add(stream, f"{what}: slowest, ms", name, float(ms.max()))
            if large.any():
                mean, n = float(ms[large].mean()), int(large.sum())
                run.add(stream, f"{what}: mean of those that grow, ms", name, mean, n=n)
            run.same(("hash after loading", stream.name, size), name, edge_hash(structure))
            del structure
            run.bench.free()


def vertices(run: Run, stream: Stream, sizes: Sequence[int]) -> None:
    """Measure deletions of vertices from an undirected graph, in million vertices per second."""
    for name in run.names:
        for size in run.divided(sizes):
            size = min(size, stream.n_vertices // 2)
            structure = run.empty(name, stream)
            structure.build(_mirrored(stream, 0, len(stream)))
            ids = np.random.default_rng(size).choice(stream.n_vertices, size, replace=False).astype(np.uint32)
            device_ids = run.bench.device.asarray(ids)
            seconds, counts = run.bench.time(partial(structure.delete_vertices, device_ids, symmetric=True))
            run.same(("edges deleted", stream.name, size), name, counts.deleted)
            run.add(stream, f"delete {short(size)} vertices, million a second", name, size / seconds / 1e6)
            del structure
        run.bench.free()


def queries(run: Run, stream: Stream, sizes: Sequence[int]) -> None:
    """Measure edge queries, half of them with an answer of True; neighbour queries; the conversion to CSR."""
    for name, structure in run.each(stream, len(stream)):
        # Edge queries.
        for size in run.divided(sizes):
            src, dst = _asked(stream, size)
            key = (stream.name, size)
            edge, row = f"{short(size)} edge queries", f"{short(size)} neighbour queries"
            answers = _answered(run, stream, name, edge, partial(structure.has_edges, src, dst))
            run.same((edge, *key), name, answers)
            if not bool(answers[: size // 2].all()):
                raise Mismatch(f"{name}: an edge that was inserted is not found")

            # Neighbour queries.
            rows = _answered(run, stream, name, row, partial(structure.neighbors, src))
            run.same((row, *key), name, rows.offsets)
        _answered(run, stream, name, "conversion to CSR", structure.to_csr)


def _asked(stream: Stream, size: int) -> tuple[Array, Array]:
    """Return ends of edges: `size // 2` of the stream, and others at random."""
    rng, xp = np.random.default_rng(size), stream.device.xp
    rows = stream.device.asarray(rng.integers(0, len(stream), size // 2))
    src, dst = stream.device.asarray(rng.integers(0, stream.n_vertices, (2, size - size // 2)).astype(np.uint32))
    return xp.concatenate([stream.src[rows], src]), xp.concatenate([stream.dst[rows], dst])


def _answered(run: Run, stream: Stream, name: str, what: str, call: Callable[[], Any]) -> Any:
    """Time a read, record the median, and return its answer."""
    seconds = run.bench.times(call, min(run.repeats, 5))
    run.add_ms(stream, what, name, [spent * 1e3 for spent in seconds])
    return call()
