"""``python -m workloads report``: archived JSON lines as Markdown tables, also between the markers of the README.

Of runs that differ in no parameter the newest counts. A run without its last line was cut short and is passed over.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mgraph.errors import InvalidOption, ReadError
from workloads.bench.harness import ARCHIVE, short

__all__ = ["BEGIN", "END", "HELP", "add_arguments", "inside", "run", "shown"]

HELP = "turn archived results into Markdown tables"
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
ASIDE = (
    "command",
    "bench",
    "out",
    "archive",
    "commit",
    "structure",
    "device",
    "repeats",
    "warm",
    "builds",
    "no_rebuild",
    "part",
    "seed",
)

Run = list[dict[str, Any]]
Row = Sequence[Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("--results", type=Path, default=ARCHIVE, metavar="DIR", help="the archive (default: %(default)s)")
    add("--hardware", metavar="NAME", help="only the archive's folders whose name contains this")
    add("--only", metavar="A,B", help="only the tables of these: " + ", ".join(TABLES))
    add("--write", type=Path, metavar="FILE", help=f"replace what stands between {BEGIN} and {END} there")


def run(options: argparse.Namespace) -> int:
    """Print the tables, or write them."""
    folders = [f for f in sorted(options.results.glob("*")) if f.is_dir() and (options.hardware or "") in f.name]
    names = options.only.split(",") if options.only else list(TABLES)
    for name in names:
        if name not in TABLES:
            raise InvalidOption(f"--only names {name!r}; there are {', '.join(TABLES)}")
    text = "\n".join(section for folder in folders for section in _folder(folder, names))
    if not text:
        where = f"for hardware {options.hardware or 'of any name'}{' and ' * bool(options.only)}{options.only or ''}"
        raise InvalidOption(f"no results under {options.results} {where}")
    if options.write is None:
        print(text)
    else:
        _write(options.write, text)
    return 0


def _write(path: Path, text: str) -> None:
    try:
        whole = path.read_text()
    except OSError as error:
        raise InvalidOption(f"{path}: {error.strerror}") from None
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise InvalidOption(f"{path} has no lines {BEGIN} and {END}, between which the tables go")
    path.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


# ---- reading -------------------------------------------------------------------------------------------------------


def _folder(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """The sections of one hardware's results."""
    newest: dict[str, Run] = {}
    for path in folder.glob("*.jsonl"):
        lines = _read(path)
        if len(lines) > 1 and lines[0].get("kind") == "run" and lines[-1]["kind"] == "end":
            key = lines[0]["name"] + json.dumps(_parameters(lines[0]), sort_keys=True)
            if key not in newest or newest[key][0]["time"] < lines[0]["time"]:
                newest[key] = lines
    for _, lines in sorted(newest.items()):
        if lines[0]["name"] in names:
            title, table = TABLES[lines[0]["name"]]
            yield f"**{title}**{_says(lines[0])}\n\n{_markdown(*table(lines))}\n"


def _read(path: Path) -> Run:
    lines = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            lines.append(json.loads(text))
        except ValueError:
            raise ReadError(f"{path}, line {number}: no JSON") from None
    return lines


def _parameters(first: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in first["parameters"].items() if name not in ASIDE}
    if not given.get("double"):
        given.pop("double_batch", None)
    return {name: value for name, value in given.items() if value not in (None, False, "")}


def _says(first: dict[str, Any]) -> str:
    """Parameters, hardware, day and commit, in one line."""
    hardware, parameters = first["hardware"], _parameters(first)
    where = f"{len(hardware['gpus'])} x {hardware['gpus'][0]}" if hardware["gpus"] else hardware["cpu"]
    if not hardware["gpus"]:
        where += f", {hardware['cores']} cores"
    what = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in parameters.items())
    commit = first["parameters"].get("commit") or first.get("commit") or "unknown"
    return f": {what}. {where}, {first['time'][:10]}, commit {commit[:10]}{'-dirty' * commit.endswith('-dirty')}."


def _markdown(columns: Sequence[str], rows: Sequence[Row]) -> str:
    def line(cells: Row) -> str:
        return "| " + " | ".join(f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells) + " |"

    return "\n".join([line(columns), "|---" * len(columns) + "|", *(line(row) for row in rows)])


# ---- one table for each benchmark ------------------------------------------------------------------------------------


def _of(lines: Run, kind: str) -> Run:
    return [line for line in lines if line["kind"] == kind]


def _updates(lines: Run) -> tuple[list[str], list[Row]]:
    """A row a phase, a column a structure."""
    cells: dict[str, dict[str, Any]] = {}
    for line in lines:
        ratio = "" if line.get("structure") == "csr" else f" ({line.get('csr_ratio', 0):.3g})"
        if line["kind"] == "build":
            cells.setdefault(f"build, {short(line['drawn'])} edges drawn", {})[line["structure"]] = (
                line["p50_ms"],
                ratio,
            )
        elif line["kind"] == "batch":
            what = f"{line['op']} {short(line['size'])}{', sorted and unique' if line['sorted'] else ''}"
            cells.setdefault(what, {})[line["structure"]] = line["p50_ms"], ratio
        elif line["kind"] == "double":
            where = "in a reserved pool, " if line.get("reserved_bytes") else ""
            for name, key in (("p50", "p50_ms"), ("p99", "p99_ms"), ("mean", "mean_ms"), ("max", "max_ms")):
                what = f"doubling by {short(line['size'])}, {where}{name}"
                cells.setdefault(what, {})[line["structure"]] = line[key], ""
            slowest = cells.setdefault(f"slowest batch of it, {where}in copies of the structure", {})
            slowest[line["structure"]] = line["slowest_copies"], ""
    for line in _of(lines, "check"):
        cells.setdefault("bytes an edge at the end", {})[line["structure"]] = line["bytes_per_edge"], ""
    names = list(dict.fromkeys(name for row in cells.values() for name in row))
    rows: list[Row] = [[what, *(_cell(row.get(name)) for name in names)] for what, row in cells.items()]
    return ["median ms (times faster than csr)", *names], rows


def _cell(found: tuple[float, str] | None) -> str:
    return "" if found is None else f"{found[0]:.4g}{found[1]}"


def _plain(kind: str, columns: dict[str, str]) -> Callable[[Run], tuple[list[str], list[Row]]]:
    """A row a line of `kind`, a column a value of it, by the heading."""

    def table(lines: Run) -> tuple[list[str], list[Row]]:
        return list(columns), [[shown(line, name) for name in columns.values()] for line in _of(lines, kind)]

    return table


def inside(line: dict[str, Any], name: str) -> Any:
    """``line["a"]["b"]`` for "a.b"; None where there is none."""
    value: Any = line
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def shown(line: dict[str, Any], name: str) -> Any:
    """The same as a table has it: large counts in few characters, nothing where there is none."""
    value = inside(line, name)
    if value is None:
        return ""
    return short(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 10_000 else value


BFS = {
    "structure": "structure",
    "arcs": "arcs",
    "bytes/arc": "bytes_per_arc",
    "median ms": "p50_ms",
    "p99 ms": "p99_ms",
}
BFS |= {"GTEPS": "gteps_median", "levels": "levels", "bottom-up": "bottom_up"}
PAGERANK = {"structure": "structure", "arcs": "arcs", "bytes/arc": "bytes_per_arc", "ms an iteration": "p50_ms"}
PAGERANK |= {"without the start": "step_ms", "L1 to csr": "l1_to_csr"}
MEMORY = {"structure": "structure", "edges at the end": "edges", "bytes/edge built": "built", "least": "least"}
MEMORY |= {"mean": "mean", "most": "most", "peak, build": "build_peak_ratio", "peak of a batch": "most_peak_ratio"}
EXCHANGE = {
    "exchange": "exchange",
    "ranks": "ranks",
    "call": "call",
    "bytes to each peer": "bytes",
    "median us": "p50_us",
}
EXCHANGE |= {"p99 us": "p99_us", "GB/s sent a rank": "gb_per_s_sent", "times the bare transport": "times_raw"}
SCALING = {"scaling": "scaling", "GPUs": "workers", "scale": "scale", "arcs": "arcs"}
SCALING |= {"BFS ms": "bfs.p50_ms", "GTEPS": "bfs.gteps_median", "PageRank ms an iteration": "pagerank.p50_ms"}
SCALING |= {"inserts/s from the client": "pipelined.updates_per_s", "of its link": "pipelined.share_of_link"}
SCALING |= {"inserts/s born on the workers": "born.updates_per_s", "half deletes": "mixed.updates_per_s"}
LONGRUN = {"batches": "done", "arcs": "arcs", "updates/s": "updates_per_s", "BFS ms": "bfs_ms"}
LONGRUN |= {"PageRank ms an iteration": "pagerank_ms_an_iteration", "most arcs / mean": "most_arcs_over_mean"}


def _longrun(lines: Run) -> tuple[list[str], list[Row]]:
    """A row a look; the bytes of all workers, of the graph and beside it."""
    columns, rows = _plain("batches", LONGRUN)(lines)
    held = [[f"{sum(line[name]) / 1e9:.2f}" for name in ("nbytes", "beside")] for line in _of(lines, "batches")]
    return [*columns, "GB of the graph", "GB beside it"], [[*row, *more] for row, more in zip(rows, held, strict=True)]


def _pagerank(lines: Run) -> tuple[list[str], list[Row]]:
    """A row a structure; what an older result saves after a batch, where that was measured."""
    columns, rows = _plain("pagerank", PAGERANK)(lines)
    again = {line["structure"]: line for line in _of(lines, "warm")}
    if not again:
        return columns, rows
    batch = short(next(iter(again.values()))["batch"])
    columns += [f"after {batch} inserts: iterations (ms) from equal ranks", "from those before"]
    ways = ([line[way] for way in ("cold", "warm")] for line in again.values())
    said = [[f"{way['iterations']} ({way['ms']:.4g})" for way in both] for both in ways]
    return columns, [[*row, *more] for row, more in zip(rows, said, strict=True)]


TABLES: dict[str, tuple[str, Callable[[Run], tuple[list[str], list[Row]]]]] = {
    "bench-updates": ("Updates", _updates),
    "bench-bfs": ("BFS", _plain("bfs", BFS)),
    "bench-pagerank": ("PageRank", _pagerank),
    "bench-memory": ("Memory", _plain("growth", MEMORY)),
    "bench-exchange": ("Exchange", _plain("exchange", EXCHANGE)),
    "scaling": ("Scaling", _plain("scaling", SCALING)),
    "longrun": ("The long run", _longrun),
}
