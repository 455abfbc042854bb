"""Where a graph's shards are: on the workers of a cluster, or in this process; and making a graph there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from mgraph.client.calls.caller import Caller
from mgraph.client.inputs.source_parts import AsParts
from mgraph.client.options import Options, choose_device, choose_structure, shape
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.device import Device
from mgraph.keys import KeyTable
from mgraph.tables.ids import KINDS

__all__ = ["NO_DASK", "Place", "directory", "make_graph", "make_shards", "not_a_client"]

NO_DASK = 'a graph with a client needs Dask (pip install "dask-mgraph[cluster]")'

#: attributes by which data that is given in place of a client is known, and the converter that takes it
DATA = {
    "__dask_graph__": "from_dask",
    "iloc": "from_pandas",
    "__arrow_c_stream__": "from_arrow",
    "is_multigraph": "from_networkx",
    "tocsr": "from_scipy",
}


def not_a_client(value: Any) -> TypeError:
    """Return the error for a value in place of a Dask client, with advice."""
    advice = ""
    if isinstance(value, int):
        advice = f"; for {value} vertices in this process write n_vertices={value}"
    elif isinstance(value, str):
        advice = f"; write Client({value!r})"
    elif (converter := next((name for sign, name in DATA.items() if hasattr(value, sign)), None)) is not None:
        advice = f"; DynamicGraph.{converter} makes a graph of it"
    return TypeError(f"DynamicGraph takes a dask.distributed.Client, got {type(value).__name__}{advice}")


class Place(Protocol):
    """A place for shards: `mgraph.client.creation.placement.OnCluster` or `mgraph.local.Here`.

    Attributes
    ----------
    size : int
        The number of ranks.
    """

    size: int

    def begin(self, patience: float) -> tuple[Caller, AsParts]:
        """What makes the calls of a new graph, without shards yet; and what makes the parts of a source there."""

    def renewed(self, lost: Caller, end: float) -> Place:
        """A place of the same kind after a loss: the workers that are there before `end`, by `time.monotonic`.

        Raises
        ------
        WorkerLost
            There are none.
        """

    def exchange(self, caller: Caller, exchange: str, device: str, found: Sequence[dict[str, Any]]) -> str:
        """The name of the exchange between the ranks; `found` is what they said of themselves."""


def make_graph(
    place: Place, options: Options, numbering: Callable[[int], Numbering], storing: Any = None
) -> tuple[Directory, Options, AsParts]:
    """A new graph, empty; with `storing`, a `Storing`, a store too.

    Returns
    -------
    Directory
        The graph's numbering and caller.
    Options
        `options` with the chosen device and exchange.
    AsParts
        Makes the parts of a source of `ingest`.

    Raises
    ------
    DeviceError
        GPUs were asked for and a worker has none, or a worker has no compiler.
    CapacityError
        There is too little memory.
    WorkerLost
        A worker cannot be reached.
    """
    now = numbering(place.size)
    caller, parts = place.begin(options.patience)
    try:
        options = make_shards(place, caller, options, now)
        if storing is not None:
            storing.create(caller, options, now.n_vertices)
    except BaseException:
        caller.close()
        raise
    return directory(caller, options, now), options, parts


def directory(caller: Caller, options: Options, numbering: Numbering) -> Directory:
    """The directory of a graph with these options; keys are looked up on the shard's GPU if that is in this process."""
    device = Device("cuda" if caller.status.one_process and options.device == "cuda" else "cpu")
    if options.keys in KINDS and numbering.keys is None:
        numbering = numbering.with_keys(KeyTable(options.keys, device))
    return Directory(caller, numbering, options, options.keys == "auto", device)


def make_shards(place: Place, caller: Caller, options: Options, numbering: Numbering) -> Options:
    """Make the shards, empty; `options` with the chosen device, exchange and structure."""
    found = caller.call("inspect")
    device = choose_device(options.device, caller.status.addresses, found)
    exchange = place.exchange(caller, options.exchange, device, found)
    structure = choose_structure(options.structure, device, options.grows)
    options = replace(options, device=device, exchange=exchange, structure=structure)
    caller.call("create", shape(options, numbering))
    return options
