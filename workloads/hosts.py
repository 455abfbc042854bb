"""``python -m workloads hosts``: predict BFS and PageRank on several hosts with eight GPUs each.

The model adds the meetings between hosts to the time of one host. Its bytes are those of `mgraph.exchange.cargo`, which
a test compares; its times per host are measured (`BFS_MS`, `ARC_SECONDS`); the time of a meeting is assumed.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.bench.harness import three_digits

__all__ = ["HELP", "Hosts", "add_arguments", "bfs_bytes", "pagerank_bytes", "rows", "run"]

HELP = "predict the time of BFS and PageRank on several hosts by a model"

ARCS = 32  #: per vertex: 16 edges drawn, stored both ways
BFS_MS = {25: 0.262, 27: 0.775, 28: 1.02, 29: 1.45}  #: by scale: a prototype's kernels on the 8 H200s of one host
ARC_SECONDS = 55.3e-3 / 20 * 4 / 1.05e9  #: of a GPU per arc and PageRank iteration: 4 H100s, scale 25, by degree
BFS_MEETINGS, UPWARD = 11, 4  #: meetings of a search, and those after which all ranks get a bitmap
GPU_BYTES = 0.9 * 141e9
ARC_BYTES = 8  #: of an arc in gpma+, with its gaps
MOST_VERTICES = 2**32 - 1


@dataclass(frozen=True)
class Hosts:
    """Hosts and the network between them.

    Attributes
    ----------
    count : int
    gigabits : float
        Of a host's network, each way.
    gpus : int
        Per host.
    meeting : float
        Seconds of an empty meeting between hosts: the end of a kernel, two meetings within the host, a message, a
        launch. Assumed.
    efficiency : float
        The share of the network's rate that messages reach. Assumed.
    link : float
        Bytes per second with which a gateway writes to its mates over NVLink.
    """

    count: int
    gigabits: float
    gpus: int = 8
    meeting: float = 60e-6
    efficiency: float = 0.9
    link: float = 300e9

    def carry(self, nbytes: float) -> float:
        """Return the seconds of a meeting in which each host sends `nbytes`, and receives as many."""
        if self.count == 1:
            return 0.0
        # The gateways of a host write what comes to the memory of all its GPUs.
        gateways = min(self.gpus, self.count - 1)
        deliver = nbytes * self.gpus / (gateways * self.link)
        return self.meeting + nbytes / (self.efficiency * self.gigabits / 8 * 1e9) + deliver


def pagerank_bytes(vertices: int, hosts: int) -> float:
    """Return the bytes that a host sends in an iteration: the shares (float32) of its vertices to each other host."""
    return 4 * vertices / hosts * (hosts - 1)


def bfs_bytes(vertices: int, hosts: int) -> float:
    """Return the bytes that a host sends after a level upward: the bits of its vertices to each other host."""
    return vertices / 8 / hosts * (hosts - 1)


def bfs_seconds(scale: int, hosts: Hosts) -> float:
    """Return the seconds of a search; messages of levels downward are neglected."""
    own = _one_host(scale - math.log2(hosts.count))
    nbytes = bfs_bytes(1 << scale, hosts.count)
    return own + UPWARD * hosts.carry(nbytes) + (BFS_MEETINGS - UPWARD) * hosts.carry(0)


def pagerank_seconds(scale: int, hosts: Hosts) -> float:
    """Return the seconds of an iteration."""
    arcs = ARCS << scale
    own = ARC_SECONDS * arcs / (hosts.gpus * hosts.count)
    return own + hosts.carry(pagerank_bytes(1 << scale, hosts.count))


def _one_host(scale: float) -> float:
    """Return the seconds of a search on one host: interpolated, and above the largest measured scale as 2^scale."""
    scales = sorted(BFS_MS)
    if scale >= scales[-1]:
        return BFS_MS[scales[-1]] * 1e-3 * 2 ** (scale - scales[-1])
    low = max([s for s in scales if s <= scale], default=scales[0])
    high = scales[scales.index(low) + 1]
    slope = math.log(BFS_MS[high] / BFS_MS[low]) / (high - low)
    return BFS_MS[low] * 1e-3 * math.exp(slope * (max(scale, low) - low))


def lacks(scale: int, hosts: Hosts, per_vertex: float) -> str:
    """Return the limit of a graph with `per_vertex` bytes per vertex on each GPU: "memory", "ids", or "" for none."""
    vertices = 1 << scale
    needed = ARC_BYTES * ARCS * vertices / (hosts.gpus * hosts.count) + per_vertex * vertices
    if needed > GPU_BYTES:
        return "memory"
    return "ids" if vertices > MOST_VERTICES else ""


#: bytes of a GPU per vertex of the graph: two bitmaps, with two inboxes and an outbox from or to all ranks of 4 bytes
BFS_STATE = 2 / 8 + (3 * 4)
PAGERANK_STATE = 2 * 4  #: two arrays of float32


def rows(scales: Sequence[int], counts: Sequence[int], gigabits: Sequence[float]) -> list[str]:
    """Return a Markdown table: milliseconds of a search, and of an iteration, by network."""
    heads = [f"{name}, {rate:g} Gbit/s" for name in ("BFS", "PageRank iteration") for rate in gigabits]
    table = [f"| scale | hosts | {' | '.join(heads)} |", "|---" * (len(heads) + 2) + "|"]
    for scale in scales:
        for count in counts:
            cells = []
            for seconds, state in ((bfs_seconds, BFS_STATE), (pagerank_seconds, PAGERANK_STATE)):
                for rate in gigabits:
                    hosts = Hosts(count, rate)
                    why = lacks(scale, hosts, state)
                    time = 1e3 * seconds(scale, hosts)
                    cells.append(three_digits(time) + (f" ({why})" if why else ""))
            table.append(f"| {scale} | {count} | {' | '.join(cells)} |")
    return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    scales = "logarithms of the number of vertices (%(default)s)"
    parser.add_argument("--scales", default="30,31", help=scales)
    parser.add_argument("--hosts", default="1,2,4,8,16", help="numbers of hosts with 8 GPUs (%(default)s)")
    parser.add_argument("--gigabits", default="100,400", help="network of a host, each way (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print the table."""
    scales, counts = ([int(word) for word in listed.split(",")] for listed in (options.scales, options.hosts))
    print("\n".join(rows(scales, counts, [float(word) for word in options.gigabits.split(",")])))
    return 0
