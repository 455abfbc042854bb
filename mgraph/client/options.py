"""The options of a graph, which its shards are made with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mgraph.algorithms.algorithm import GraphFacts
from mgraph.checks import check_number, check_whole
from mgraph.client.numbering import Numbering
from mgraph.errors import DeviceError, InvalidOption
from mgraph.structures import parse

__all__ = ["DEVICES", "Options", "choose_device", "fixed_order", "shape"]

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Options:
    """The options of a graph. `mgraph.graph.DynamicGraph` documents each of them; `grows` if it has no `n_vertices`.

    Raises
    ------
    InvalidOption
        A name is unknown, or a number is out of its range.
    """

    structure: str
    weighted: bool
    directed: bool
    reverse: bool
    exchange: str
    device: str
    reserve: int
    patience: float
    grows: bool = False

    def __post_init__(self) -> None:
        parse(self.structure)
        if self.device not in DEVICES:
            raise InvalidOption(f"device {self.device!r} is none of {', '.join(map(repr, DEVICES))}")
        check_whole(self.reserve, "reserve")
        if not 0 < check_number(self.patience, "patience") < math.inf:
            raise InvalidOption(f"patience is {self.patience}; it must be a finite number of seconds above 0")

    def facts(self, n_vertices: int) -> GraphFacts:
        """The properties on which the check of an algorithm's arguments may depend."""
        return GraphFacts(n_vertices, self.directed, self.weighted, self.reverse or not self.directed)


def shape(options: Options, numbering: Numbering) -> dict[str, Any]:
    """The arguments of the call `create`."""
    given = {name: getattr(options, name) for name in ("device", "exchange", "structure", "directed", "weighted")}
    reverse = options.reverse and options.directed
    return {
        **given, "reverse": reverse, "reserve": int(options.reserve),
        "starts": numbering.partition.starts, "order": numbering.order,
    }  # fmt: skip


def fixed_order(order: Any) -> Any:
    """The order with which a graph begins: a permutation, or None. None for "degree", known after the first batch."""
    if isinstance(order, str):
        if order != "degree":
            raise InvalidOption(f'order {order!r} is neither "degree" nor a permutation of the vertices')
        return None
    return order


def choose_device(device: str, workers: Sequence[str], found: Sequence[dict[str, Any]]) -> str:
    """The kind of device to use, "cpu" or "cuda". "auto" chooses GPUs if every worker has one.

    Raises
    ------
    DeviceError
        GPUs were asked for, and a worker has none.
    """
    without = [address for address, worker in zip(workers, found, strict=True) if not worker["gpus"]]
    if device == "cuda" and without:
        raise DeviceError(
            f'device "cuda" was asked for and {len(without)} of {len(workers)} workers have no GPU that CuPy can use: '
            f'{", ".join(without)}; a GPU needs the NVIDIA driver and CuPy (pip install "dask-mgraph[cuda13]")'
        )
    return device if device != "auto" else "cpu" if without else "cuda"
