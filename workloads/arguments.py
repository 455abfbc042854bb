"""Options that several commands share, and checks of numbers."""

from __future__ import annotations

import argparse
from pathlib import Path

from mgraph.device import Device, gpu_count
from mgraph.errors import InvalidOption

__all__ = ["add_born_graph", "add_device", "add_kernel_device", "add_record", "check_least", "device_of"]


def add_born_graph(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Declare the graph's device and the edges that its workers draw. Returns the options for its shape."""
    add = parser.add_argument
    add_device(parser)
    add("--structure", default="gpma+", help="the workers' local structure (default: %(default)s)")
    add("--exchange", default="auto", help="how the workers exchange data (default: %(default)s)")
    add(
        "--reserve",
        type=int,
        default=0,
        metavar="BYTES",
        help="bytes of GPU memory that a graph takes on each worker when it is made",
    )
    add("--edge-factor", type=int, default=16, metavar="F", help="F * 2**S edges drawn (default: %(default)s)")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--uniform", action="store_true", help="uniform random edges instead of RMAT .57/.19/.19/.05")
    add("--seed", type=int, default=1, help="of the edges (default: %(default)s)")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--symmetric", dest="directed", action="store_false", help="undirected (the default)")
    way.add_argument("--directed", dest="directed", action="store_true", help="directed, without in-edges")
    parser.set_defaults(directed=False)
    add("--ids", default="degree", choices=("degree", "drawn"), help="internal ids: ordered by degree, or as drawn")
    add("--part", type=int, default=1 << 24, metavar="N", help="edges a worker draws at once while building")
    return shape


def add_record(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare where `what` is written."""
    add = parser.add_argument
    add("--out", type=Path, metavar="DIR", help=f"write {what} here")
    add("--archive", action="store_true", help="write them to benchmarks/results, in the folder of this hardware")
    add("--commit", metavar="HASH", help="the commit that ran, outside of a git checkout")


def add_device(parser: argparse.ArgumentParser) -> None:
    """Declare the device of the graph.

    Every command with a graph uses this.
    """
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu or gpu (default: %(default)s)")


def add_kernel_device(parser: argparse.ArgumentParser) -> None:
    """Declare the device of kernels in this process, for `device_of`."""
    add_device(parser)
    parser.add_argument("--threads", type=int, metavar="N", help="host threads of CPU kernels (default: all)")


def device_of(name: str, threads: int | None = None) -> Device:
    """Return the device of this process that ``--device`` names.

    "auto" prefers a GPU. "cuda" is another name of "gpu", and "cuda:1" names one of several GPUs.

    Raises
    ------
    InvalidOption
        The name is unknown, or `threads` is less than 1.
    DeviceError
        The GPU is absent.
    """
    if threads is not None and threads < 1:
        raise InvalidOption(f"--threads is {threads}; at least 1 is needed")
    if name == "auto":
        name = "gpu" if gpu_count() else "cpu"
    device = Device.of("cuda" if name == "gpu" else name)
    return Device(device.kind, device.index, threads or device.threads)


def check_least(options: argparse.Namespace, *names: str, least: int = 1) -> None:
    """Raise `InvalidOption` unless each of these options is None, or `least` or more."""
    for name in names:
        value = getattr(options, name)
        if value is not None and value < least:
            raise InvalidOption(f"--{name.replace('_', '-')} is {value}; at least {least} is needed")
