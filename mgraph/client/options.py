"""The options of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from mgraph.algorithms.algorithm import GraphFacts
from mgraph.checks import check_number, check_whole, is_choice
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import DeviceError, InvalidOption
from mgraph.facade import hint
from mgraph.structures import parse
from mgraph.structures.combine import COMBINES
from mgraph.tables.ids import check_kind
from mgraph.tables.names import Names, from_mapping

__all__ = [
    "DEVICES",
    "DirectionOptions",
    "GraphOptions",
    "LogOptions",
    "OpenOptions",
    "Options",
    "PlaceOptions",
    "StoreOptions",
    "WeightOptions",
    "choose_device",
    "choose_structure",
    "fixed_order",
    "keys_of",
    "shape",
]

DEVICES = ("auto", "cpu", "cuda")


class LogOptions(TypedDict, total=False):
    """The further options of a store that is opened; `mgraph.graph.DynamicGraph` documents them."""

    lag_bytes: int
    lag_seconds: float
    snapshot_bytes: int
    retain: int
    recover: Literal["auto"] | None
    max_recoveries: int


class StoreOptions(LogOptions, total=False):
    """The further options of a graph's store; `mgraph.graph.DynamicGraph` documents them."""

    snapshots: Any
    disks: Literal["shared", "local"]


class PlaceOptions(TypedDict, total=False):
    """The options of a graph that is made of one that exists; `mgraph.graph.DynamicGraph` documents them."""

    structure: str
    reverse: bool
    order: Any
    balance: Any
    workers: Sequence[str] | None
    exchange: Literal["auto", "loopback", "peer", "peer+tcp", "peer+ucx", "tcp", "ucx", "nccl"] | str
    device: Literal["auto", "cpu", "cuda"]
    reserve: int
    patience: float


class OpenOptions(LogOptions, PlaceOptions, total=False):
    """The options of `DynamicGraph.open`."""


class _OtherOptions(StoreOptions, PlaceOptions, total=False):
    keys: Literal["auto", "int64", "string"] | None
    combine: Literal["last", "sum", "min", "max"]
    times: Any
    window: Any
    window_edges: int | None
    drop_isolated: bool
    store: Any
    sync: Literal["always", "background"]


class WeightOptions(_OtherOptions, total=False):
    """The options of a new graph, without `directed`."""

    weighted: bool


class DirectionOptions(_OtherOptions, total=False):
    """The options of a new graph, without `weighted`."""

    directed: bool


class GraphOptions(WeightOptions, DirectionOptions, total=False):
    """The options of a new graph, as keyword arguments.

    `mgraph.graph.DynamicGraph` documents them.
    """


@dataclass(frozen=True)
class Options:
    """The options of a graph.

    `mgraph.graph.DynamicGraph` documents each option. `grows` is True without `n_vertices`. `keys` is "auto" if the
    first batch decides.

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
    combine: str = "last"
    keys: str | None = None
    times: str | None = None
    window: int | None = None
    window_edges: int | None = None
    drop_isolated: bool = False

    def __post_init__(self) -> None:
        if not is_choice(self.structure, ("auto",)):
            parse(self.structure)
        check_kind(self.keys)
        if not is_choice(self.device, DEVICES):
            raise InvalidOption(
                f"device {self.device!r} is none of {', '.join(map(repr, DEVICES))}{hint(self.device, DEVICES)}"
            )
        if not is_choice(self.combine, COMBINES):
            raise InvalidOption(f"combine {self.combine!r} is none of {', '.join(map(repr, COMBINES))}")
        if self.combine != "last" and not self.weighted:
            raise InvalidOption(f"combine {self.combine!r} is about weights; create the graph with weighted=True")
        if self.drop_isolated and self.keys is None:
            raise InvalidOption(
                "drop_isolated removes vertices, which only a graph with keys can; create it with keys="
            )
        if check_whole(self.reserve, "reserve") >= 2**63:
            raise InvalidOption(f"reserve is {self.reserve}; it must be less than 2**63 bytes")
        if not 0 < check_number(self.patience, "patience") < math.inf:
            raise InvalidOption(f"patience is {self.patience}; it must be a finite number of seconds above 0")

    def names(self, *, columns: Any = None, ops: bool = True, **given: Any) -> Names:
        """Return the columns that a change of the graph reads: the `given` names, else the graph's columns.

        `columns` is the deprecated mapping of names. With `ops`, operations are read.
        """
        kept = {"weight": self.weighted, "op": ops, "time": self.times is not None}
        return from_mapping(columns, Names(**given, reads=tuple(name for name, reads in kept.items() if reads)))

    def facts(self, numbering: Numbering) -> GraphFacts:
        """Return the properties that checks of arguments depend on."""
        ids = None if numbering.keys is None else numbering.ids
        reverse = self.reverse or not self.directed
        return GraphFacts(numbering.n_vertices, self.directed, self.weighted, reverse, ids, self.times)


def choose_structure(structure: str, device: str, grows: bool) -> str:
    """Return the structure to use; "auto" means lpma on the CPU for a graph that grows, else gpma+.

    The page "Which structure?" has the figures behind this rule.
    """
    if structure != "auto":
        return structure
    return "lpma" if device == "cpu" and grows else "gpma+"


def keys_of(keys: Any, n_vertices: Any) -> str | None:
    """Return the option `keys` of a graph; None by default if the user gives `n_vertices`.

    Raises
    ------
    InvalidOption
        `keys` is no kind of keys, or contradicts `n_vertices`.
    """
    check_kind(keys)
    if n_vertices is None or keys is None:
        return None if keys is None else str(keys)
    if keys != "auto":
        raise InvalidOption(
            f"keys is {keys!r} and n_vertices {n_vertices}; a graph with keys gets its vertices from its edges: "
            "leave out n_vertices or keys"
        )
    return None


def shape(options: Options, numbering: Numbering) -> dict[str, Any]:
    """Return the arguments of the call `create`."""
    names = ("device", "exchange", "structure", "directed", "weighted", "combine", "times", "window", "window_edges")
    values = {name: getattr(options, name) for name in names}
    reverse = options.reverse and options.directed
    return {
        **values, "reverse": reverse, "reserve": int(options.reserve),
        "starts": numbering.partition.starts, "order": numbering.order,
        "generation": numbering.generation,
    }  # fmt: skip


def fixed_order(order: Any) -> Any:
    """Return the order with which a graph begins: a permutation, or None.

    It is None for "degree", which is known only after the first batch.
    """
    if isinstance(order, str):
        if order != "degree":
            raise InvalidOption(f'order {order!r} is neither "degree" nor a permutation of the vertices')
        return None
    return order


def choose_device(device: str, workers: Sequence[str], answers: Sequence[dict[str, Any]]) -> str:
    """Return the kind of device to use, "cpu" or "cuda". "auto" chooses GPUs if every worker has a GPU.

    Raises
    ------
    DeviceError
        GPUs were requested, and a worker has none.
    """
    assert device in DEVICES, device
    no_gpu = [address for address, worker in zip(workers, answers, strict=True) if not worker["gpus"]]
    if device == "cuda" and no_gpu:
        raise DeviceError(
            f'device "cuda" was asked for and {len(no_gpu)} of {len(workers)} workers have no GPU that CuPy can use: '
            f'{", ".join(no_gpu)}; a GPU needs the NVIDIA driver and CuPy (pip install "dask-mgraph[cuda13]")'
        )
    return device if device != "auto" else "cpu" if no_gpu else "cuda"
