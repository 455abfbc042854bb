"""``python -m workloads report``: archived JSON lines as Markdown tables, on the terminal or in a document.

In a document a table goes between two markers. The first may name the tables to put there, and the folders of the
archive to take them from: ``<!-- results:begin summary -->``, ``<!-- results:begin bench-networkx amd-epyc -->`` and
``<!-- results:end -->``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mgraph.errors import InvalidOption
from workloads.bench import keys
from workloads.bench.harness import ARCHIVE, short
from workloads.gap.command import means
from workloads.paper.command import measured
from workloads.paper.papers import PAPERS
from workloads.report.by_gpus import by_gpus, six_by_gpus
from workloads.report.published_results import published_results
from workloads.report.slow_batches import doubling, slow_batches
from workloads.report.summary import summary
from workloads.results.archive import Run, newest, of, parameters, provenance
from workloads.results.result_table import pivot

__all__ = ["HELP", "add_arguments", "inside", "run", "shown"]

HELP = "turn archived results into Markdown tables"
#: tables of all benchmarks of a machine
OVERVIEWS = {
    "summary": summary,
    "pauses": slow_batches,
    "others": published_results,
    "gpus": by_gpus,
    "six-by-gpus": six_by_gpus,
}
MARKED = re.compile(r"(<!-- results:begin([ a-z0-9,-]*) -->\n).*?(<!-- results:end -->)", re.DOTALL)

Row = Sequence[Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("--results", type=Path, default=ARCHIVE, metavar="DIR", help="the archive (default: %(default)s)")
    add("--hardware", metavar="NAME", help="only the archive's folders whose name contains this")
    add("--only", metavar="A,B", help=f"only these tables: {', '.join((*OVERVIEWS, *TABLES))}")
    instead = parser.add_mutually_exclusive_group().add_argument
    instead("--write", type=Path, metavar="FILE", help="write them between the markers of this file instead")
    instead("--latencies", type=Path, metavar="FILE", help="draw the batches that double a graph into this SVG instead")
    instead("--speedups", type=Path, metavar="FILE", help="draw algorithms on several GPUs into this SVG instead")


def run(options: argparse.Namespace) -> int:
    """Print the tables, or write them, or draw the picture."""
    folders = [f for f in sorted(options.results.glob("*")) if f.is_dir() and (options.hardware or "") in f.name]

    # Words name tables or folders.
    def tables(wanted: str) -> str:
        words = wanted.replace(",", " ").split()
        chosen = [folder for folder in folders if folder.name in words] or folders
        names = [word for word in words if word not in {folder.name for folder in folders}] or list(TABLES)
        for name in names:
            if name not in TABLES and name not in OVERVIEWS:
                raise InvalidOption(f"no table is named {name!r}; the tables are {', '.join((*OVERVIEWS, *TABLES))}")
        text = "\n".join(section for folder in chosen for section in _sections(folder, names))
        if not text:
            named = f" whose name contains {options.hardware!r}" if options.hardware else ""
            raise InvalidOption(f"{options.results} has no folder{named} with results of {', '.join(names)}")
        return text

    # Choose the output.
    if options.latencies is not None:
        _draw_latencies([run for folder in folders for run in doubling(newest(folder))], options.latencies)
    elif options.speedups is not None:
        _draw_speedups([run for folder in folders for run in newest(folder)], options.speedups)
    elif options.write is not None:
        _write(options.write, lambda wanted: tables(options.only or wanted))
    else:
        print(tables(options.only or ""))
    return 0


def _draw_latencies(runs: list[Run], path: Path) -> None:
    if not runs:
        raise InvalidOption("no run to draw has the time of each batch: bench updates --double keeps it")
    from workloads.report.latency_plot import save_latencies  # tables need no Matplotlib

    with _written(path):
        save_latencies(runs, path)


def _draw_speedups(runs: list[Run], path: Path) -> None:
    from workloads.report.speedup_plot import save_speedups

    with _written(path):
        if not save_speedups(runs, path):
            raise InvalidOption("no run to draw has algorithms on several GPUs: scaling --measure algorithms has")


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidOption(f"{path}: {error.strerror}") from None


def _write(path: Path, tables: Callable[[str], str]) -> None:
    try:
        whole = path.read_text()
    except OSError as error:
        raise InvalidOption(f"{path}: {error.strerror}") from None
    whole, places = MARKED.subn(lambda match: f"{match[1]}\n{tables(match[2])}\n{match[3]}", whole)
    if not places:
        raise InvalidOption(
            f"{path} has no place for a table: add the lines <!-- results:begin --> and <!-- results:end -->"
        )
    path.write_text(whole)


def _sections(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """Yield the named tables of a machine's results."""
    runs = newest(folder)
    for name in names:
        where, columns, rows = OVERVIEWS[name](runs) if name in OVERVIEWS else ("", [], [])
        if rows:
            yield f"{where}.\n\n{_markdown(columns, rows)}\n"
    for lines in runs:
        if lines[0]["name"] in names and lines[0]["name"] in TABLES:
            title, table = TABLES[lines[0]["name"]]
            head, body = table(lines)
            if body:
                yield f"**{title}**: {_says(lines[0])}\n\n{_markdown(head, body)}\n"


def _says(first: dict[str, Any]) -> str:
    """Return parameters, hardware, day and commit, in one line."""
    chosen = parameters(first).items()
    what = ", ".join(name.replace("_", " ") + ("" if value is True else f" {value}") for name, value in chosen)
    return f"{what}. {provenance(first)}."


def _markdown(columns: Sequence[str], rows: Sequence[Row]) -> str:
    def line(cells: Row) -> str:
        return "| " + " | ".join(f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells) + " |"

    return "\n".join([line(columns), "|---" * len(columns) + "|", *(line(row) for row in rows)])


# ---- one table for each benchmark ------------------------------------------------------------------------------------


def _updates(lines: Run) -> tuple[list[str], list[Row]]:
    """Return a row per phase, a column per structure."""
    # Collect the cells by phase and structure.
    cells: dict[str, dict[str, Any]] = {}
    for line in lines:
        ratio = "" if line.get("structure") == "csr" else f" ({line.get('csr_ratio', 0):.3g})"
        if line["kind"] == "build":
            what = f"build from {short(line['drawn'])} edges, repeats included"
            cells.setdefault(what, {})[line["structure"]] = line["p50_ms"], ratio
        elif line["kind"] == "batch":
            what = f"{line['op']} {short(line['size'])}{', sorted and unique' if line['sorted'] else ''}"
            cells.setdefault(what, {})[line["structure"]] = line["p50_ms"], ratio
        elif line["kind"] == "double":
            where = ", memory reserved" if line.get("reserved_bytes") else ""
            for name, key in (("p50", "p50_ms"), ("p99", "p99_ms"), ("mean", "mean_ms"), ("max", "max_ms")):
                what = f"{name} of the batches of {short(line['size'])} that double the graph{where}"
                cells.setdefault(what, {})[line["structure"]] = line[key], ""
            slowest = cells.setdefault(f"slowest of them, relative to a copy of the graph{where}", {})
            slowest[line["structure"]] = line["slowest_copies"], ""
    for line in of(lines, "check"):
        cells.setdefault("bytes per edge after the batches", {})[line["structure"]] = line["bytes_per_edge"], ""

    # Lay them out, structures in the order of their first appearance.
    names = list(dict.fromkeys(name for row in cells.values() for name in row))
    rows: list[Row] = [[what, *(_cell(row.get(name)) for name in names)] for what, row in cells.items()]
    return ["median ms (speed-up over csr)", *names], rows


def _cell(value: tuple[float, str] | None) -> str:
    return "" if value is None else f"{value[0]:.4g}{value[1]}"


def _plain(kind: str, columns: dict[str, str]) -> Callable[[Run], tuple[list[str], list[Row]]]:
    """Return a function that makes a row per line of `kind`, with a column per value, by the heading."""

    def table(lines: Run) -> tuple[list[str], list[Row]]:
        return list(columns), [[shown(line, name) for name in columns.values()] for line in of(lines, kind)]

    return table


def inside(line: dict[str, Any], name: str) -> Any:
    """Return ``line["a"]["b"]`` for "a.b"; None if absent."""
    value: Any = line
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def shown(line: dict[str, Any], name: str) -> Any:
    """Return such a value as a table cell: large counts in few characters, "" if absent."""
    value = inside(line, name)
    return "" if value is None else _short(value)


def _short(value: Any) -> Any:
    return short(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000 else value


BFS = {
    "structure": "structure",
    "arcs": "arcs",
    "bytes/arc": "bytes_per_arc",
    "median ms": "p50_ms",
    "p99 ms": "p99_ms",
}
BFS |= {"GTEPS": "gteps_median", "levels": "levels", "bottom-up": "bottom_up"}
PAGERANK = {"structure": "structure", "arcs": "arcs", "bytes/arc": "bytes_per_arc", "ms per iteration": "p50_ms"}
PAGERANK |= {"setup excluded": "step_ms", "L1 distance to csr": "l1_to_csr"}
SSSP = {"structure": "structure", "arcs": "arcs", "median ms": "p50_ms", "least": "min_ms", "most": "max_ms"}
SSSP |= {"reached": "reached", "supersteps": "supersteps"}
MEMORY = {"structure": "structure", "edges at the end": "edges"}
MEMORY |= {"bytes per edge as built": "built", "least": "least"}
MEMORY |= {"mean": "mean", "most": "most", "peak of the build / size": "build_peak_ratio"}
MEMORY |= {
    "peak of a batch / size before it": "most_peak_ratio",
    "peak of a batch / size after it": "most_peak_after_ratio",
}
EXCHANGE = {
    "exchange": "exchange",
    "ranks": "ranks",
    "call": "call",
    "bytes to each peer": "bytes",
    "median us": "p50_us",
}
EXCHANGE |= {"p99 us": "p99_us", "GB/s sent by a rank": "gb_per_s_sent"}
EXCHANGE |= {"relative to the bare transport": "times_raw"}
SCALING = {"scaling": "scaling", "GPUs": "workers", "scale": "scale", "arcs": "arcs"}
SCALING |= {"BFS ms": "bfs.p50_ms", "GTEPS": "bfs.gteps_median", "PageRank ms per iteration": "pagerank.p50_ms"}
SCALING |= {"inserts/s from the client": "pipelined.updates_per_s"}
SCALING |= {"share of the link's bandwidth": "pipelined.share_of_link"}
SCALING |= {"inserts/s from the workers": "born.updates_per_s", "updates/s, 50% deletes": "mixed.updates_per_s"}
NETWORKX = {"function": "function", "nodes": "nodes", "edges": "edges"}
NETWORKX |= {"NetworkX, ms": "networkx_ms", "mgraph, ms": "mgraph_ms", "times faster": "times"}
NETWORKX |= {"on a live graph, ms": "live_ms"}
LIVE = {"structure": "structure", "result": "name", "batch": "batch", "changes": "batches", "median ms": "p50_ms"}
LIVE |= {
    "most ms": "max_ms",
    "fresh run, ms": "fresh_ms",
    "share of a fresh run": "share",
    "arcs visited": "visited",
    "how": "how",
}
QUALITY = {"quality below a fresh run's": "loss", "at most": "worst_loss", "fresh runs differ by": "spread"}
STORE = {"part": "part", "what": "what", "edges": "edges", "seconds": "seconds", "median ms": "p50_ms"}
STORE |= {"p99 ms": "p99_ms", "edges/s": "edges_per_s", "MB/s": "mb_per_s", "share of the disk's rate": "disk_share"}
STORE |= {"loss, %": "loss_percent", "relative to reading and building": "ratio", "the graph waits, s": "pause_s"}
STORE |= {"loss noticed, s": "noticed_s", "workers there, s": "sessions_s", "restored, s": "restore_s"}
LONGRUN = {"batches": "done", "edges": "edges", "arcs": "arcs", "updates/s": "updates_per_s", "BFS ms": "bfs_ms"}
LONGRUN |= {"PageRank ms per iteration": "pagerank_ms_an_iteration", "largest shard / mean": "most_arcs_over_mean"}


GRAPHALYTICS = {"algorithm": "algorithm", "mean ms": "mean_ms", "edges and vertices per second": "evps"}
GRAPHALYTICS |= {"validated by": "validation"}


def _scaling(lines: Run) -> tuple[list[str], list[Row]]:
    """Return a row per point, without those at which only algorithms were timed."""
    return _plain("scaling", SCALING)([line for line in lines if "algorithms" not in line])


def _longrun(lines: Run) -> tuple[list[str], list[Row]]:
    """Return the first, the middle and the last measurement, with the gigabytes of the graph and of other memory."""
    columns, rows = _plain("batches", LONGRUN)(lines)
    gigabytes = [[f"{sum(line[name]) / 1e9:.2f}" for name in ("nbytes", "beside")] for line in of(lines, "batches")]
    rows = [[*row, *more] for row, more in zip(rows, gigabytes, strict=True)]
    return [*columns, "graph, GB", "other memory, GB"], [
        rows[at] for at in sorted({0, (len(rows) - 1) // 2, len(rows) - 1})
    ]


def _live(lines: Run) -> tuple[list[str], list[Row]]:
    """Return a row per read, with the quality that maintained communities lack where these were measured."""
    columns, rows = _plain("live", LIVE)(lines)
    rows = [[*row[:-1], str(row[-1]).replace("again", "recomputed")] for row in rows]  # as older records say
    reads = of(lines, "live")
    if any("loss" in line for line in reads):
        columns += QUALITY
        percents = [[f"{line[name]:.3%}" if name in line else "" for name in QUALITY.values()] for line in reads]
        rows = [[*row, *more] for row, more in zip(rows, percents, strict=True)]
    return columns, rows


def _store(lines: Run) -> tuple[list[str], list[Row]]:
    """Return a row per figure, without empty columns."""
    columns, rows = _plain("store", STORE)(lines)
    kept = [at for at in range(len(columns)) if any(row[at] != "" for row in rows)]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _pagerank(lines: Run) -> tuple[list[str], list[Row]]:
    """Return a row per structure, with the runs after a batch if they were measured."""
    # Without runs after a batch, a plain table.
    columns, rows = _plain("pagerank", PAGERANK)(lines)
    again = {line["structure"]: line for line in of(lines, "warm")}
    if not again:
        return columns, rows

    # Add a column per way to start.
    batch = short(next(iter(again.values()))["batch"])
    columns += [f"after {batch} inserts: iterations (ms) from equal ranks", "from those before"]
    ways = ([line[way] for way in ("cold", "warm")] for line in again.values())
    texts = [[f"{way['iterations']} ({way['ms']:.4g})" for way in both] for both in ways]
    return columns, [[*row, *more] for row, more in zip(rows, texts, strict=True)]


def _algorithms(lines: Run) -> tuple[list[str], list[Row]]:
    """Return a row per algorithm, a column per structure."""
    cells: dict[str, dict[str, Any]] = {}
    for line in lines:
        if "p50_ms" in line:
            cells.setdefault(line["kind"], {})[line["structure"]] = line["p50_ms"]
    names = list(dict.fromkeys(name for row in cells.values() for name in row))
    rows: list[Row] = [[what, *(row.get(name, "") for name in names)] for what, row in cells.items()]
    return ["median ms", *names], rows


def _gap(lines: Run) -> tuple[list[str], list[Row]]:
    columns, rows = pivot(means(lines))
    return columns, list(rows)


def _graphalytics(lines: Run) -> tuple[list[str], list[Row]]:
    """Return a row per algorithm, with the graph."""
    (graph,) = of(lines, "graph")
    columns, rows = _plain("algorithm", GRAPHALYTICS)(lines)
    facts = ["graph", "data", "vertices", "edges", "scale"]
    return [*facts, *columns], [[*(_short(graph[name]) for name in facts), *row] for row in rows]


def _paper(lines: Run) -> tuple[list[str], list[Row]]:
    columns, rows = pivot(measured(lines))
    return columns, list(rows)


TABLES: dict[str, tuple[str, Callable[[Run], tuple[list[str], list[Row]]]]] = {
    "bench-updates": ("Updates", _updates),
    "bench-bfs": ("BFS", _plain("bfs", BFS)),
    "bench-pagerank": ("PageRank", _pagerank),
    "bench-algorithms": ("Algorithms", _algorithms),
    "bench-sssp": ("Shortest paths", _plain("sssp", SSSP)),
    "bench-live": ("Results that follow the graph", _live),
    "bench-memory": ("Memory", _plain("growth", MEMORY)),
    "bench-exchange": ("Exchange", _plain("exchange", EXCHANGE)),
    "bench-networkx": ("NetworkX", _plain("networkx", NETWORKX)),
    "bench-keys": ("Own ids", _plain("keys", keys.COLUMNS)),
    "bench-store": ("Stores", _store),
    "scaling": ("Scaling", _scaling),
    "longrun": ("Long run", _longrun),
    "bench-gap": ("GAP, mean ms of the trials", _gap),
    "bench-graphalytics": ("Graphalytics, unaudited", _graphalytics),
    **{f"bench-paper-{name}": (f"The experiments of {name}'s paper", _paper) for name in PAPERS},
}
