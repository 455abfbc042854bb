"""``bench execute``: mixed streams, relative to their updates alone and to an update and a read.

Each stream is executed on a graph in this process, by a user's calls. Before each timed call the graph is reset: the
stream's inserts are absent, and its deletes present. Then:

- ``execute``: the stream;
- ``updates``: its updates alone, by ``update``;
- ``update and read``: its updates by ``update``, then all queries by one ``has_edges`` and one ``degrees``. This does
  not answer them: each query is answered as of the end;
- ``runs``: the first operations of the stream cut into runs of one kind, with a call each. Their answers must equal
  those of ``execute``.

Rows are timed apart: queries for neighbours alone, and among the updates, against ``neighbors``.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph import Answers, DynamicGraph, Operations
from mgraph.device import Array
from mgraph.errors import InvalidOption
from workloads.arguments import check_least
from workloads.bench.harness import Bench, Mismatch, short, summary
from workloads.bench.inputs import Edges, add_graph_arguments, chosen_structures

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time streams of updates and queries, against their updates alone and against an update and a read"
WAYS = ("execute", "updates", "update and read")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add_graph_arguments(parser)
    add = parser.add_argument
    add("--operations", type=int, default=1_000_000, metavar="N", help="of a stream (default: %(default)s)")
    add("--queries", default="0.03,0.3", metavar="X,X", help="shares of queries in a stream (default: %(default)s)")
    add("--rows", type=int, default=10_000, metavar="N", help="queries for neighbours (default: %(default)s)")
    add("--repeats", type=int, default=10, metavar="N", help="calls to time (default: %(default)s)")
    add("--runs", type=int, default=1000, metavar="N", help="operations to cut into runs (default: %(default)s)")


def measure(bench: Bench) -> None:
    # Build the graph of each structure, and time all streams on it.
    """Time every stream on every structure."""
    options = bench.options
    check_least(options, "operations", "rows", "repeats", "runs")
    shares, edges = _shares(options.queries), Edges(options, bench.device)
    rows: list[list[Any]] = []
    row_rows: list[list[Any]] = []
    for name in chosen_structures(options):
        with DynamicGraph(n_vertices=edges.n_vertices, structure=name, device=bench.device.kind) as graph:
            graph.insert(*edges.between(0, edges.n_edges))
            bench.say(f"{name}: {graph.num_edges:,} edges, {bench.device}")
            streams = _Streams(bench, name, graph, edges)
            rows += [row for share in shares for row in streams.points(share)]
            row_rows += streams.rows()
        del streams
        bench.free()

    # Print the tables.
    bench.table(
        f"{short(options.operations)} operations; the counts of all ways are equal, the answers those of the runs",
        ["structure", "queries", "way", "p50 ms", "max ms", "execute / this"],
        rows,
    )
    bench.table("rows", ["structure", "way", "p50 ms", "GB returned", "GB/s"], row_rows)


def _shares(text: str) -> list[float]:
    try:
        shares = [float(word) for word in text.split(",") if word]
    except ValueError:
        shares = []
    if not shares or any(not 0 < share < 1 for share in shares):
        raise InvalidOption(f"--queries is {text!r}; a list of numbers between 0 and 1 is needed")
    return shares


class _Streams:
    """Streams of a graph."""

    def __init__(self, bench: Bench, name: str, graph: DynamicGraph, edges: Edges) -> None:
        self.bench, self.name, self.graph, self.edges = bench, name, graph, edges

    def _stream(self, share: float) -> Operations:
        """Return inserts of new edges, deletes of old ones, and queries about both.

        Half of the queries are for edges, half for degrees.
        """
        # Draw the kinds.
        bench, n = self.bench, self.bench.options.operations
        rng = np.random.default_rng(1)
        update, half = (1 - share) / 2, share / 2
        codes = [Operations.INSERT, Operations.DELETE, Operations.HAS_EDGE, Operations.DEGREE]
        kinds = bench.device.asarray(rng.choice(np.array(codes, np.int8), n, p=[update, update, half, half]))

        # Draw the edges: inserts take new ones, deletes old ones, queries either.
        fresh, old = self.edges.between(self.edges.n_edges, self.edges.n_edges + n), self.edges.between(0, n)
        new = (kinds == Operations.INSERT) | bench.device.asarray(rng.random(n) < 0.5) & (kinds != Operations.DELETE)
        return Operations(kinds, *(bench.xp.where(new, a, b) for a, b in zip(fresh, old, strict=True)))

    def _reset(self, stream: Operations) -> None:
        """Reset the graph: remove the stream's inserts, and insert its deletes."""
        for code, change in ((Operations.INSERT, self.graph.delete), (Operations.DELETE, self.graph.insert)):
            mine = stream.kind == code
            change(stream.src[mine], stream.dst[mine])

    def points(self, share: float) -> list[list[Any]]:
        """Time a stream with a `share` of queries.

        Returns rows for the table.
        """
        # The ways: the stream, its updates alone, and its updates followed by one read.
        bench, graph, stream = self.bench, self.graph, self._stream(share)
        batch, asked = stream.updates(), [stream.kind == code for code in (Operations.HAS_EDGE, Operations.DEGREE)]
        edges, vertices = (stream.src[asked[0]], stream.dst[asked[0]]), stream.src[asked[1]]

        def update_and_read() -> Any:
            report = graph.update(batch)
            graph.has_edges(*edges)
            graph.degrees(vertices)
            return report

        calls = [lambda: graph.execute(stream).report, lambda: graph.update(batch), update_and_read]

        # Time them in turn, so that other load affects all alike.
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        counts = set()
        for _ in range(1 + bench.options.repeats):  # the first does not count
            for way, call in zip(WAYS, calls, strict=True):
                self._reset(stream)
                spent, report = bench.time(call)
                seconds[way].append(spent)
                counts.add((report.inserted, report.updated, report.deleted, report.missing))
        if len(counts) != 1:
            raise Mismatch(f"{self.name}: the updates did {sorted(counts)}, by the ways {', '.join(WAYS)}")

        # One row per way, relative to `execute`.
        lines = []
        median = {way: float(np.median(taken[1:])) for way, taken in seconds.items()}
        for way, taken in seconds.items():
            ratio = round(median["execute"] / median[way], 3)
            facts = {"structure": self.name, "queries": share, "way": way, "operations": len(stream), "ratio": ratio}
            line = bench.add("stream", **facts, edges=graph.num_edges, **summary(taken[1:]))
            lines.append([self.name, f"{share:.0%}", way, line["p50_ms"], line["max_ms"], ratio])
        lines.append(self._runs(stream, share, median["execute"]))
        return lines

    def _runs(self, stream: Operations, share: float, seconds: float) -> list[Any]:
        """Time the first operations in runs of one kind, and compare their answers with those of `execute`."""
        # Cut the operations where the kind changes.
        n = min(self.bench.options.runs, len(stream))
        host = [self.bench.device.to_host(column[:n]) for column in (stream.kind, stream.src, stream.dst)]
        cut = Operations(*host)
        cuts = [0, *(np.flatnonzero(np.diff(cut.kind)) + 1).tolist(), n]

        # Time the runs.
        self._reset(stream)
        spent, parts = self.bench.time(lambda: [self._run(cut, a, b) for a, b in pairwise(cuts)])

        # Compare the answers.
        self._reset(stream)
        answers = self.graph.execute(cut)
        for code, mine in ((Operations.HAS_EDGE, answers.has_edge), (Operations.DEGREE, answers.degree)):
            theirs = [part for kind, part in parts if kind == code]
            if np.concatenate([mine[:0], *theirs]).tolist() != mine.tolist():
                raise Mismatch(f"{self.name}: the first {n} operations are answered otherwise in runs of one kind")

        # Extrapolate to the whole stream.
        rate, executed = n / spent, len(stream) / seconds
        facts = {"structure": self.name, "queries": share, "operations": n, "runs": len(cuts) - 1}
        self.bench.add("runs", **facts, per_second=round(rate), execute_per_second=round(executed))
        ms = spent / n * len(stream) * 1e3
        return [self.name, f"{share:.0%}", f"runs, by {short(n)} operations", ms, ms, round(rate / executed, 6)]

    def _run(self, cut: Operations, first: int, end: int) -> tuple[int, np.ndarray]:
        kind, src, dst = int(cut.kind[first]), cut.src[first:end], cut.dst[first:end]
        if kind == Operations.DEGREE:
            return kind, self.graph.degrees(src)
        if kind == Operations.HAS_EDGE:
            return kind, self.graph.has_edges(src, dst)
        (self.graph.insert if kind == Operations.INSERT else self.graph.delete)(src, dst)
        return kind, np.empty(0)

    def rows(self) -> list[list[Any]]:
        """Time queries for the neighbours of the sources of some edges."""
        # The streams: rows alone, and rows spread evenly among the operations.
        bench, options = self.bench, self.bench.options
        ids, stream = self.edges.between(0, options.rows)[0], self._stream(1e-9)
        alone = Operations(np.full(len(ids), Operations.NEIGHBORS), *[bench.device.to_host(ids)] * 2)
        every, places = max(1, len(stream) // len(ids)), bench.xp.arange(min(len(ids), len(stream)))
        kinds, src = stream.kind.copy(), stream.src.copy()
        kinds[places * every], src[places * every] = Operations.NEIGHBORS, ids[: len(places)]
        among = Operations(kinds, src, stream.dst)

        # Time each way.
        lines = []
        for way, call in (
            ("neighbors", lambda: self.graph.neighbors(ids)),
            ("execute, rows alone", lambda: self.graph.execute(alone)),
            (f"execute, rows among {short(len(stream))} operations", lambda: self.graph.execute(among)),
        ):
            taken, nbytes = [], 0
            for _ in range(1 + options.repeats):
                self._reset(stream)
                spent, result = bench.time(call)
                taken.append(spent)
                nbytes = _bytes(result.neighbors if isinstance(result, Answers) else result)
                del result
            seconds = float(np.median(taken[1:]))
            rate = round(nbytes / seconds / 1e9, 6)
            facts = {"structure": self.name, "way": way, "rows": len(ids), "nbytes": nbytes, "gb_per_s": rate}
            line = bench.add("rows", **facts, **summary(taken[1:]))
            lines.append([self.name, way, line["p50_ms"], nbytes / 1e9, rate])
        return lines


def _bytes(csr: Any) -> int:
    columns: list[Array] = [csr.offsets, csr.dst, csr.weight]
    return sum(column.nbytes for column in columns if column is not None)
