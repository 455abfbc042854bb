"""``python -m cluster probe``: print a machine's facts, the cluster for it, and the reasons.

It also starts that cluster, or connects to one, and times every exchange that its workers can use.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from dask.utils import format_bytes
from distributed import Client

from cluster import facts
from cluster.choice import Machine, choose
from cluster.exchanges import compare
from cluster.scheduler_file import connect
from cluster.start import start
from mgraph.exchange.groups import Groups

__all__ = ["HELP", "add_arguments", "as_text", "probe", "run"]

HELP = "print GPUs, links, UCX, versions, the host, what start() would choose and why, and how fast workers exchange"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--workers", type=int, metavar="N", help="as start(workers=N)")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "gpu"), help="as start(device=...)")
    measured = parser.add_mutually_exclusive_group()
    measured.add_argument("--no-exchange", action="store_true", help="start no workers, and time no exchange")
    measured.add_argument(
        "--scheduler-file", metavar="FILE", help="time the exchanges of this cluster's workers, and start none"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command; returns 0."""
    facts_of_machine = probe(options.workers, options.device)
    if not options.no_exchange:
        with _cluster(options) as client:
            facts_of_machine["exchange"] = compare(client, options.device)
    print(json.dumps(facts_of_machine, indent=2) if options.json else as_text(facts_of_machine))
    return 0


def _cluster(options: argparse.Namespace) -> Client:
    if options.scheduler_file:
        return connect(options.scheduler_file, workers=options.workers or 1)
    return start(options.workers, device=options.device)


def probe(workers: int | None = None, device: str = "auto") -> dict[str, Any]:
    """Return all facts of this machine as plain values: gpus, links, ucx, versions, host, choice.

    Takes seconds.

    Raises
    ------
    InvalidOption, DeviceError
        The errors of `cluster.start` for these options.
    """
    machine = Machine.here()
    choice = choose(machine, workers, device=device)
    gpus = facts.gpus()
    return {
        "gpus": gpus,
        "usable_gpus": list(machine.gpus),
        "links": facts.links(len(gpus)),
        "ucx": facts.ucx(),
        "versions": facts.versions(),
        "host": facts.host(machine),
        "choice": asdict(choice),
    }


def as_text(facts: dict[str, Any]) -> str:
    """Format the facts of `probe` as lines."""
    parts = [
        _section("GPUs", _gpu_lines(facts) or ["none"]),
        _section("links", [f"{i} - {j}: {pair['link']}" for pair in facts["links"] for i, j in [pair["gpus"]]]),
        _section("UCX", _ucx_lines(facts["ucx"])),
        _section("versions", [f"{name} {version}" for name, version in facts["versions"].items()]),
        _section("host", _host_lines(facts["host"])),
        _section("start() would choose", _choice_lines(facts["choice"])),
        _section("exchange", _exchange_lines(facts["exchange"]) if "exchange" in facts else []),
    ]
    return "\n".join(filter(None, parts))


def _section(title: str, lines: list[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)]) if lines else ""


def _gpu_lines(facts: dict[str, Any]) -> list[str]:
    lines = [
        f"{index}: {gpu['name']}, {format_bytes(gpu['memory_bytes'])}, driver {gpu['driver']}"
        for index, gpu in enumerate(facts["gpus"])
    ]
    usable = ", ".join(facts["usable_gpus"]) or "none"
    return [*lines, f"usable by CuPy: {usable}"] if lines else []


def _ucx_lines(ucx: dict[str, Any]) -> list[str]:
    if "why" in ucx:
        return [f"unknown: {ucx['why']}"]
    cuda = "with transports of GPU memory" if ucx["cuda"] else "no transports of GPU memory"
    head = f"UCX {ucx['version']}, UCXX {ucx['ucxx']}, {cuda}"
    return [head, *(f"{transport}: {', '.join(devices)}" for transport, devices in ucx["transports"].items())]


def _host_lines(host: dict[str, Any]) -> list[str]:
    memory = f"{format_bytes(host['memory_bytes'])} of memory, {format_bytes(host['memory_free_bytes'])} free"
    compiler = host["compiler"] or f"none: {host['compiler_why']}"
    return [host["system"], f"{host['cores']} cores, {memory}", f"compiler: {compiler}"]


def _choice_lines(choice: dict[str, Any]) -> list[str]:
    shown = {**choice, "device": choice["device"] + (f" ({', '.join(choice['gpus'])})" if choice["gpus"] else "")}
    if choice["memory_limit"]:
        shown["memory_limit"] = format_bytes(choice["memory_limit"])
    width = max(map(len, choice["why"]))
    return [
        f"{name:{width}}  {'none' if shown[name] is None else shown[name]}: {why}"
        for name, why in choice["why"].items()
    ]


def _group_lines(comparison: dict[str, Any]) -> list[str]:
    """Say which workers map each other's memory, and which pairs of them send, where there are several groups."""
    if (groups := Groups.parse(comparison["auto"], comparison["ranks"])) is None:
        return []
    members = [", ".join(map(str, groups.members(group))) for group in range(groups.count)]
    pairs = [f"{groups.gateway(a, b)} - {groups.gateway(b, a)}" for a in range(groups.count) for b in range(a)]
    return [
        f"workers that map each other's memory: {' | '.join(members)}",
        f"workers that send for their hosts by {groups.network}: {', '.join(pairs)}",
    ]


def _exchange_lines(comparison: dict[str, Any]) -> list[str]:
    lines = [f"auto, between {comparison['ranks']} workers: {comparison['auto']}, because {comparison['why']}"]
    lines += _group_lines(comparison)
    way = "channels from thread to thread"
    if comparison["calls_by_comm"]:
        way = f"the comms, because {comparison['calls_by_comm']}"
    lines.append(f"an empty call takes {comparison['call_s'] * 1e6:.0f} us; calls go by {way}")
    # A head over the columns, then one line per exchange.
    measured = [exchange for exchange in comparison["exchanges"] if "bulk_s" in exchange]
    if measured:
        lines.append(f"{'':9} {'allreduce':>12} {format_bytes(measured[0]['bulk_bytes']):>12} {'each rank sends':>16}")
    for exchange in comparison["exchanges"]:
        if "why" in exchange:
            lines.append(f"{exchange['exchange']:9} not usable: {exchange['why']}")
            continue
        small, large = f"{exchange['allreduce_s'] * 1e6:.1f} us", f"{exchange['bulk_s'] * 1e3:.1f} ms"
        rate = f"{exchange['bulk_bytes'] / exchange['bulk_s'] / 1e9:.2f} GB/s"
        lines.append(f"{exchange['exchange']:9} {small:>12} {large:>12} {rate:>16}")
    return lines
