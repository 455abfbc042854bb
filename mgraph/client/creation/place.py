"""Places for a graph's shards: the workers of a cluster, or this process; and new graphs there."""

from __future__ import annotations

import os
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

#: attributes that identify data in place of a client, and the converter for it
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
    elif isinstance(value, str) and ":" in value:  # an address
        advice = f"; write Client({value!r})"
    elif isinstance(value, str | os.PathLike):
        path = os.fspath(value)
        advice = f"; DynamicGraph.open({path!r}) opens a store, and DynamicGraph(store={path!r}) makes one"
    elif hasattr(value, "scheduler_address"):
        advice = "; write Client(cluster)"
    elif isinstance(value, list | tuple | set):
        advice = "; insert of a new DynamicGraph() takes edges"
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
        """Return the caller of a new graph without shards, and a function that makes a source's parts."""

    def renewed(self, lost: Caller, end: float) -> Place:
        """Return a place of the same kind after a loss, with the workers available before `end`, by `time.monotonic`.

        Raises
        ------
        WorkerLost
            No worker is left.
        """

    def exchange(self, caller: Caller, exchange: str, device: str, answers: Sequence[dict[str, Any]]) -> str:
        """Return the name of the exchange for the ranks, by their `answers` to the call `inspect`."""


def make_graph(
    place: Place, options: Options, numbering: Callable[[int], Numbering], storing: Any = None
) -> tuple[Directory, Options, AsParts]:
    """Make a new, empty graph; with `storing`, a `Storing`, also its store.

    Returns
    -------
    Directory
        The graph's numbering and caller.
    Options
        `options` with the chosen device and exchange.
    AsParts
        Makes the parts of an ingest's source.

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

    # Close the sessions if the shards or the store cannot be made.
    try:
        options = make_shards(place, caller, options, now)
        if storing is not None:
            storing.create(caller, options, now.n_vertices)
    except BaseException:
        caller.close()
        raise
    return directory(caller, options, now), options, parts


def directory(caller: Caller, options: Options, numbering: Numbering) -> Directory:
    """Return the directory of a graph. Keys are looked up on the shard's GPU if that is in this process."""
    device = Device("cuda" if caller.status.one_process and options.device == "cuda" else "cpu")
    if options.keys in KINDS and numbering.keys is None:
        numbering = numbering.with_keys(KeyTable(options.keys, device))
    return Directory(caller, numbering, options, options.keys == "auto", device)


def make_shards(place: Place, caller: Caller, options: Options, numbering: Numbering) -> Options:
    """Make empty shards. Return `options` with the chosen device, exchange and structure."""
    answers = caller.call("inspect")
    device = choose_device(options.device, caller.status.addresses, answers)
    exchange = place.exchange(caller, options.exchange, device, answers)
    structure = choose_structure(options.structure, device, options.grows)
    options = replace(options, device=device, exchange=exchange, structure=structure)
    caller.call("create", shape(options, numbering))
    return options
