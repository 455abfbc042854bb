"""A first job on a cluster of `launch.sh`: change a random graph, analyse it, print the times."""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from cluster import connect
from mgraph import DynamicGraph, EdgeBatch

START_SECONDS = 120.0


def main() -> None:
    """Run the job on the cluster of MGRAPH_SCHEDULER_FILE."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--scale", type=int, default=20, metavar="S", help="2**S vertices (default: %(default)s)")
    add("--batch", type=int, default=1_000_000, metavar="N", help="edges per batch (default: %(default)s)")
    add("--batches", type=int, default=10, metavar="K", help="(default: %(default)s)")
    options = parser.parse_args()
    # Connect to the workers that the batch job started.
    n, rng = 1 << options.scale, np.random.default_rng(1)
    workers = int(os.environ.get("MGRAPH_WORKERS", "1"))
    with (
        connect(os.environ["MGRAPH_SCHEDULER_FILE"], workers=workers, timeout=START_SECONDS) as client,
        DynamicGraph(client, n_vertices=n, reverse=True) as graph,
    ):
        # Change the graph, and print the rate.
        for _ in range(options.batches):
            src, dst = rng.integers(0, n, (2, options.batch), np.uint32)
            op = np.where(rng.random(options.batch) < 0.9, 1, -1).astype(np.int8)
            report = graph.update(EdgeBatch(src, dst, op=op))
            print(f"epoch {report.epoch}: {options.batch / report.seconds / 1e6:.2f} M updates/s", flush=True)
        # Analyse it, and print the times.
        for name, arguments in (("bfs", {"source": 0}), ("pagerank", {})):
            began = time.perf_counter()
            result = graph.run(name, **arguments)
            print(f"{result!r}: {(time.perf_counter() - began) * 1e3:.1f} ms", flush=True)
        print(repr(graph), flush=True)


if __name__ == "__main__":
    main()
