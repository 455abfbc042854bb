"""Copies of a shard, for another graph in the same process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mgraph.device import Device
from mgraph.parallel_copy import cloned
from mgraph.structures import Structure
from mgraph.worker.shard.shard import Shard, Unconnected
from mgraph.worker.vertices.rebalance import all_edges, built

__all__ = ["bytes_of_copy", "copied"]

BYTES = 24  #: upper bound of the bytes per arc of a structure while another one is built from its edges


def bytes_of_copy(shard: Shard, structure: str) -> int:
    """Return the bytes that `copied` needs; about as many for another structure, whose size is known only later."""
    nbytes = 0 if shard.order is None else int(shard.order.nbytes)
    nbytes += 0 if shard.clock is None else shard.clock.nbytes
    nbytes += sum(edges.nbytes for edges in shard.structures)
    if structure != shard.spec.structure:
        nbytes += BYTES * max(edges.num_edges for edges in shard.structures)
    return nbytes


def copied(shard: Shard, graph: str, structure: str, device: Device) -> Shard:
    """Return an independent shard of `graph` with the same edges, times and epoch.

    It has no window, no results and no exchange. O(bytes) for the same structure; another one is built from the sorted
    edges, O(n_rows + m log m) at most.

    Parameters
    ----------
    graph : str
        The id of the copy's graph.
    structure : str
        The name of the copy's structure, with its options.
    device : Device
        The copy's device: the shard's CPU or GPU.

    Raises
    ------
    CapacityError
        The memory does not suffice.
    """
    # Make an empty shard for the same ids, without what removes edges by itself.
    spec = replace(
        shard.spec, graph=graph, structure=structure, partition=shard.partition, order=cloned(device, shard.order),
        generation=shard.generation, window=None, window_edges=None, copy_of=shard.spec.graph,
    )  # fmt: skip
    twin = Shard(spec, Unconnected(), device)

    # Copy the structures, and the times of their arcs.
    same = structure == shard.spec.structure
    structures = [edges.clone(device) if same else _rebuilt(shard, twin, edges) for edges in shard.structures]
    twin.hold(structures[0], structures[-1] if shard.in_edges is not None else None)
    if shard.clock is not None and twin.clock is not None:
        twin.clock.times = [times.clone(device) for times in shard.clock.times]

    # Continue from the same counts.
    twin.epoch, twin.changes, twin.operations = shard.epoch, shard.changes, shard.operations
    twin.num_edges = shard.num_edges
    twin.stuck_words[:] = shard.stuck_words
    return twin


def _rebuilt(shard: Shard, twin: Shard, edges: Structure) -> Structure:
    """Return a structure of the copy's kind with the edges of a structure of the shard."""
    run = all_edges(shard, edges)
    keys = run.keys
    keys -= np.uint64(shard.lo << 32)  # to local rows
    return built(twin, shard.partition, run, count=False)[0]
