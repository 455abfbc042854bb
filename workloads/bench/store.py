"""``bench store``: costs of a store: logged batches, snapshots, openings, and a killed worker.

All figures stand beside those of the disk alone, measured in the same run and folder. Batches are drawn beforehand. The
contents of graphs are compared: graphs of the same batches, and a graph before and after it is opened again, must have
the same number of edges and the same hash of them.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mgraph.errors import InvalidOption
from workloads.arguments import check_least
from workloads.bench.disk import drop_cached, file_system, read_seconds, touch_memory, write_seconds
from workloads.bench.harness import Bench, counts_of, short
from workloads.bench.inputs import Edges
from workloads.bench.recovery import measure_recovery
from workloads.bench.reopen import measure_open, measure_snapshot
from workloads.bench.store_run import Stored
from workloads.bench.streams import EDGE_BYTES, measure_streams, passes_of

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "what a store costs: logged batches, snapshots, openings and a lost worker, beside the disk alone"
PARTS = ("disk", "stream", "snapshot", "open", "recover")
TRIES = 2  #: files written per kind; the faster one counts
COPIES = 3  #: stores of all edges on the disk at the same time, at most; a snapshot counts as one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add = parser.add_argument
    add("--parts", default=",".join(PARTS), metavar="A,B", help="which parts (default: %(default)s)")
    add("--path", type=Path, metavar="DIR", help="where the stores are made (default: a temporary folder)")
    add("--workers", type=int, metavar="N", help="on so many workers of a local cluster (default: in this process)")
    add("--structure", default="gpma+", metavar="S", help="with options as in slabgraph:slab=32 (default: %(default)s)")
    add("--scale", type=int, default=18, metavar="S", help="2**S vertices (default: %(default)s)")
    add("--edge-factor", type=int, default=16, metavar="F", help="F * 2**S edges drawn (default: %(default)s)")
    add("--uniform", action="store_true", help="uniform random edges instead of RMAT .57/.19/.19/.05")
    add("--seed", type=int, default=1, help="of the edges (default: %(default)s)")
    add("--resident", type=int, metavar="N", help="edges drawn before the batches (default: all)")
    add("--part", type=int, default=1 << 24, metavar="N", help="edges of a batch of these (default: %(default)s)")
    add("--batch", type=int, default=1_000_000, metavar="N", help="edges per batch (default: %(default)s)")
    add("--batches", type=int, default=10, metavar="N", help="batches of each pass (default: %(default)s)")
    add("--pause", type=float, metavar="MS", help="one more pass, with so many ms between batches")
    add("--lag-bytes", type=int, default=256 << 20, metavar="N", help="of the stores (default: %(default)s)")
    add("--disk-bytes", type=int, default=1 << 27, metavar="N", help="of the disk's files (default: %(default)s)")
    recover = "edges drawn before a worker is killed, ascending; needs --workers of 2 or more (default: %(default)s)"
    add("--recover-edges", default="1e6,1e7", metavar="N,N", help=recover)


def measure(bench: Bench) -> None:
    """Measure the requested parts, each beside the disk alone."""
    # Check the options and the room on the disk, and touch the memory.
    options = bench.options
    parts = _checked(options)
    with ExitStack() as stack:
        root = _folder(options, stack)
        needed, written = _check_room(options, parts, root)
        bench.say(f"{root}: up to {short(needed)} bytes at the same time, about {short(written)} written in all")
        bench.say(f"up to {needed / 2e9:.3g} GB of memory used once, in {touch_memory(needed // 2):.3g} s")

        # Measure part by part; a part may leave its store to the next.
        client = _client(bench, stack) if options.workers else None
        run = Stored(bench, root, client, Edges(options, bench.device))
        where = f"on {options.workers} workers" if client is not None else "in this process"
        bench.say(f"{run.resident:,} edges drawn on {run.edges.n_vertices:,} vertices, {bench.device}, {where}")
        if "disk" in parts or "stream" in parts:
            _disk(run)
        if "stream" in parts:
            measure_streams(run)
        if "open" in parts:
            measure_open(run, "the log")
        if "snapshot" in parts or "open" in parts:
            measure_snapshot(run)
        if "open" in parts:
            measure_open(run, "a snapshot")
        if "recover" in parts and client is not None:
            run.drop()
            measure_recovery(run, counts_of(options.recover_edges, "recover-edges"))
        run.drop()
    bench.table("beside the disk alone", list(COLUMNS), run.rows(COLUMNS.values()))


def _checked(options: argparse.Namespace) -> list[str]:
    parts = [part for part in options.parts.split(",") if part]
    if unknown := [part for part in parts if part not in PARTS]:
        raise InvalidOption(f"--parts names {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    check_least(options, "workers", "resident", "part", "batch", "batches", "lag_bytes", "disk_bytes")
    if options.pause is not None and not 0 < options.pause < math.inf:
        raise InvalidOption(f"--pause is {options.pause}; milliseconds above 0 are needed")
    counts_of(options.recover_edges, "recover-edges")
    if "recover" in parts and (options.workers or 2) < 2:
        raise InvalidOption(f"--workers is {options.workers}; recovery is measured on 2 or more")
    if options.workers is None and parts == ["recover"]:
        raise InvalidOption("a worker can be lost only where there are some: add --workers 2")
    return parts


def _folder(options: argparse.Namespace, stack: ExitStack) -> Path:
    """Make a temporary folder, removed at the end."""
    try:
        if options.path is not None:
            options.path.mkdir(parents=True, exist_ok=True)
        root = Path(tempfile.mkdtemp(prefix="mgraph-store-", dir=options.path))
    except OSError as error:
        raise InvalidOption(f"cannot write to {options.path}: {error.strerror}") from None
    stack.callback(shutil.rmtree, root, ignore_errors=True)
    return root


def _check_room(options: argparse.Namespace, parts: list[str], root: Path) -> tuple[int, int]:
    """Return the bytes of the files that exist at the same time, and the bytes that are written.

    Raises `InvalidOption` if the disk has fewer free.
    """
    # Files of the disk alone, then stores: two of a stream, or the log, and a snapshot.
    edges, disk = 0, options.disk_bytes if {"disk", "stream"} & set(parts) else 0
    written = 2 * TRIES * disk
    if {"stream", "snapshot", "open"} & set(parts):
        batches = sum(map(sum, passes_of(options).values())) if "stream" in parts else 0
        edges = (options.resident or options.edge_factor << options.scale) + batches * options.batch
        written += EDGE_BYTES * edges * (2 * ("stream" in parts) or 1)
        written += EDGE_BYTES * edges if {"snapshot", "open"} & set(parts) else 0
    if "recover" in parts and options.workers:
        most = max(counts_of(options.recover_edges, "recover-edges"))
        edges, written = max(edges, most), written + EDGE_BYTES * most
    needed, free = max(disk, EDGE_BYTES * edges * COPIES), shutil.disk_usage(root).free
    if free < needed:
        raise InvalidOption(f"{root} has {free:,} bytes free; {needed:,} are needed: fewer edges, or another --path")
    return needed, written


def _client(bench: Bench, stack: ExitStack) -> Any:
    from cluster import start

    return stack.enter_context(start(bench.options.workers, device=bench.device.kind))


def _disk(run: Stored) -> None:
    """Write and read a file, and set the disk's rates."""
    # Write, with one sync and with a sync per batch.
    path, nbytes, every = run.root / "file", run.bench.options.disk_bytes, 8 * run.bench.options.batch
    kind = file_system(run.root)
    run.bench.say(f"{run.root} is on {kind}")
    for what, sync_every in (("write, one sync", None), (f"write, a sync every {short(every)} bytes", every)):
        seconds = min(write_seconds(path, nbytes, sync_every) for _ in range(TRIES))
        run.disk["always" if sync_every else "background"] = nbytes / seconds
        run.add("disk", what, seconds=seconds, nbytes=nbytes, file_system=kind)

    # Read, cached and cold.
    warm = read_seconds([path])
    drop_cached([path])
    for what, seconds in (("read, cold", read_seconds([path])), ("read, cached", warm)):
        run.add("disk", what, seconds=seconds, nbytes=nbytes)
    path.unlink()


#: values of a line, by the heading of their column in the table
COLUMNS = {"part": "part", "": "what", "s": "seconds", "ms": "p50_ms", "MB/s": "mb_per_s", "of disk": "disk_share"}
COLUMNS |= {"loss %": "loss_percent", "ratio": "ratio"}
