"""Content of the page: a table and plots, with Bokeh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, CustomJS, DataTable, Div, NumberFormatter, NumeralTickFormatter, TableColumn
from bokeh.palettes import Category10_10
from bokeh.plotting import figure
from distributed.dashboard.components.scheduler import BOKEH_THEME, env

from mgraph.dashboard.samples import Samples, Track

__all__ = ["fill"]

UPDATE_MS = 1000
COLUMNS = {
    "graph": ("graph", None, 110),
    "copy_of": ("copy of", None, 110),
    "rank": ("rank", None, 40),
    "worker": ("worker", None, 170),
    "epoch": ("epoch", "0,0", 70),
    "edges": ("edges", "0,0", 90),
    "operations": ("edges in batches", "0,0", 110),
    "memory_bytes": ("memory", "0.0 ib", 90),
    "ms": ("last batch, ms", "0.00", 100),
    "doing": ("doing", None, 160),
    "since": ("for, s", "0.0", 60),
}

Drawn = Callable[[], None]


def fill(samples: Samples, extra: dict[str, Any], doc: Any) -> None:
    """Fill a browser's document, and update it every second."""
    # Create each part with its update function.
    table, tabled = _table(samples)
    shown = [
        _lines(samples, "edges changed a second", lambda track: track.rates),
        _lines(samples, "last batch, ms (slowest rank)", lambda track: track.latencies),
        _lines(samples, "edges", lambda track: track.edges),
        _memory(samples),
    ]
    title, titled = _title(samples)
    parts = [titled, tabled, *(update for _, update in shown)]

    # Update all parts now and every second.
    def update() -> None:
        for part in parts:
            part()

    update()
    doc.add_periodic_callback(update, UPDATE_MS)

    # Lay the parts out.
    plots = [plot for plot, _ in shown]
    rows = [row(*pair, sizing_mode="stretch_width") for pair in (plots[:2], plots[2:])]
    doc.add_root(column(title, table, *rows, sizing_mode="stretch_width"))
    doc.title, doc.theme = "Dask: mgraph", BOKEH_THEME
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)


def _title(samples: Samples) -> tuple[Any, Drawn]:
    div = Div(text="", sizing_mode="stretch_width")

    def update() -> None:
        graphs = {shard["graph"] for shard in samples.shards}
        number = f"{len(graphs)} graph{'' if len(graphs) == 1 else 's'}"
        edges = sum(shard["edges"] for shard in samples.shards)
        rate = sum(track.rates[-1] for graph, track in samples.tracks.items() if graph in graphs)
        div.text = f"<b>{number}, {edges:,} edges, {rate:,.0f} edges changed a second</b>"

    return div, update


def _table(samples: Samples) -> tuple[Any, Drawn]:
    source = ColumnDataSource({name: [] for name in COLUMNS})
    columns = [
        TableColumn(field=name, title=title, width=width, **({"formatter": NumberFormatter(format=how)} if how else {}))
        for name, (title, how, width) in COLUMNS.items()
    ]
    table = DataTable(source=source, columns=columns, height=240, index_position=None, sizing_mode="stretch_width")
    # Bokeh 3.9 draws a table again when the number of its rows changes, and not when only their values do.
    source.js_on_change("data", CustomJS(args={"table": table}, code="table.view.change.emit()"))

    # Refresh the rows.
    def update() -> None:
        rows = [
            {**shard, "ms": 1e3 * shard["last_batch_seconds"], "doing": shard["doing"] or "waits for a call"}
            for shard in samples.shards
        ]
        source.data = {name: [values[name] for values in rows] for name in COLUMNS}

    return table, update


def _lines(samples: Samples, title: str, values: Callable[[Track], Any]) -> tuple[Any, Drawn]:
    """Plot a line per graph over the last minutes."""
    source = ColumnDataSource({"xs": [], "ys": [], "color": [], "graph": []})
    # Style the plot.
    plot = figure(title=title, height=240, x_axis_type="datetime", tools="", sizing_mode="stretch_width")
    plot.multi_line("xs", "ys", color="color", legend_field="graph", source=source, line_width=2)
    plot.y_range.start = 0
    plot.yaxis.formatter = NumeralTickFormatter(format="0.[0]a")
    plot.legend.location, plot.legend.label_text_font_size = "top_left", "8pt"
    plot.toolbar_location = None

    # Refresh the lines.
    def update() -> None:
        tracks = samples.tracks
        source.data = {
            "xs": [[1e3 * at for at in track.times] for track in tracks.values()],
            "ys": [list(values(track)) for track in tracks.values()],
            "color": [Category10_10[i % 10] for i in range(len(tracks))],
            "graph": list(tracks),
        }

    return plot, update


def _memory(samples: Samples) -> tuple[Any, Drawn]:
    """Plot a bar per worker: the MiB of its shards."""
    source = ColumnDataSource({"worker": [], "mib": []})
    plot = figure(title="memory of graphs a worker, MiB", height=240, y_range=[], tools="", sizing_mode="stretch_width")
    plot.hbar(y="worker", right="mib", height=0.7, source=source, color=Category10_10[0])
    plot.x_range.start, plot.toolbar_location = 0, None

    # Refresh the bars, and the axis if workers came or went.
    def update() -> None:
        mib: dict[str, float] = {}
        for shard in samples.shards:
            mib[shard["worker"]] = mib.get(shard["worker"], 0.0) + shard["memory_bytes"] / 2**20
        if list(mib) != plot.y_range.factors:
            plot.y_range.factors = list(mib)
        source.data = {"worker": list(mib), "mib": list(mib.values())}

    return plot, update
