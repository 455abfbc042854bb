"""Reads by the owners of rows: ids are routed to their owners, and answers put back in request order.

A read names the vertex ranges by which it was split. If they have changed meanwhile, the ranks refuse it with
`mgraph.failures.Stale`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mgraph.client.calls.caller import Caller
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering, Routed, joined
from mgraph.errors import InvalidBatch
from mgraph.structures import Csr

__all__ = [
    "all_rows",
    "degrees",
    "fingerprint",
    "has_edges",
    "neighbors",
    "offsets_of",
    "rows_at",
    "rows_here",
    "weights",
]


def has_edges(coordinator: Caller, numbering: Numbering, src: Any, dst: Any) -> np.ndarray:
    """Check the existence of edges in users' names: bool[n]."""
    return _ask_owners(coordinator, numbering, "has_edges", "found", numbering.place, _edges(numbering, src, dst))


def weights(coordinator: Caller, numbering: Numbering, src: Any, dst: Any) -> np.ndarray:
    """Return the weight of each edge, in users' names of vertices, or NaN: float32[n]."""
    return _ask_owners(coordinator, numbering, "weights", "weights", numbering.place, _edges(numbering, src, dst))


def _edges(numbering: Numbering, src: Any, dst: Any) -> dict[str, np.ndarray]:
    """Return edges in users' names as edges in users' ids."""
    src, dst = numbering.ids(src, "src"), numbering.ids(dst, "dst")
    if src.shape != dst.shape:
        raise InvalidBatch(f"src has shape {src.shape} and dst has shape {dst.shape}; both need the same length")
    return {"src": src, "dst": dst}


def _ask_owners(
    coordinator: Caller, numbering: Numbering, method: str, answer: str, common: dict, columns: dict[str, np.ndarray]
) -> np.ndarray:
    """Ask the owners of rows for a value per row, and return the values in request order.

    `columns` have users' ids, the rows first.
    """
    if numbering.order is not None:
        columns = {name: numbering.order[ids] for name, ids in columns.items()}
    rows = next(iter(columns.values()))
    shares = [columns] if numbering.partition.size == 1 else numbering.of_one_owner(rows, columns)
    if shares is not None:
        return joined([rank_answer[answer] for rank_answer in coordinator.call(method, common, shares) if rank_answer])

    # Group the ids by owner, ask each rank for its own, and restore the order.
    routed = numbering.group(rows)
    parts_by_rank = zip(*[routed.deal(ids) for ids in columns.values()], strict=True)
    answers = coordinator.call(method, common, [dict(zip(columns, parts, strict=True)) for parts in parts_by_rank])
    return routed.restore([rank_answer[answer] for rank_answer in answers if rank_answer])  # others were not asked


def degrees(coordinator: Caller, numbering: Numbering, vertices: Any, direction: str) -> np.ndarray:
    """Return the out-degrees or in-degrees of vertices in users' names, or of all: uint32[n]."""
    if vertices is None:
        ids = np.arange(numbering.n_vertices, dtype=np.uint32)
    else:
        ids = numbering.ids(vertices, "ids")
    return _ask_owners(
        coordinator, numbering, "degrees", "degrees", {**numbering.place, "direction": direction}, {"ids": ids}
    )


def neighbors(coordinator: Caller, numbering: Numbering, vertices: Any, direction: str, time: bool = False) -> Csr:
    """Return the out- or in-neighbours of vertices, all in users' names, as rows in the order of `vertices`."""
    rows = rows_of(coordinator, numbering, numbering.ids(vertices, "ids"), direction, time)
    return rows if numbering.keys is None else replace(rows, dst=numbering.names(rows.dst))


def rows_of(
    coordinator: Caller, numbering: Numbering, ids: np.ndarray, direction: str = "out", time: bool = False
) -> Csr:
    """Return the out- or in-neighbours of users' ids, as rows of users' ids.

    In a graph with keys these ids are positions in `vertices`.
    """
    common = {**numbering.place, "direction": direction, **({"time": True} if time else {})}
    ids = numbering.inside(ids)
    shares = [{"ids": ids}] if numbering.partition.size == 1 else numbering.of_one_owner(ids, {"ids": ids})
    if shares is not None:
        return _joined(coordinator.call("neighbors", common, shares), numbering)
    routed = numbering.group(ids)
    answers = coordinator.call("neighbors", common, [{"ids": part} for part in routed.deal(routed.internal)])
    return _rows_in_order(_joined(answers, numbering), routed)


def fingerprint(directory: Directory) -> int:
    """Return a hash of the set of edges; `DynamicGraph.fingerprint` documents it."""
    with directory.still() as keys:
        args = {} if keys is None else {"hashes": keys.hashes(directory.n_vertices)}
        return sum(answer["hash"] for answer in directory.coordinator.call("fingerprint", args)) % 2**64


def all_rows(coordinator: Caller, numbering: Numbering, time: bool = False) -> Csr:
    """Return the rows of all vertices, in the order of users' ids; with `time` also the edges' times.

    In a graph with an `order`, destinations ascend within each row and it takes O(m log m). Otherwise they come in the
    order in which the structure stores them, and it takes O(n + m).
    """
    routed = numbering.route(np.arange(numbering.n_vertices, dtype=np.uint32))
    common = {**numbering.place, "ids": None, **({"time": True} if time else {})}
    csr = _joined(coordinator.call("neighbors", common), numbering)
    if numbering.order is None:
        # Rows are sorted only if the structure stores them sorted, as with neighbors().
        return csr

    # Rows came in internal order; destinations are sorted for a defined order.
    by_internal = Routed(routed.internal, numbering.outside(np.arange(numbering.n_vertices)), routed.bounds)
    return _sorted_rows(_rows_in_order(csr, by_internal))


def rows_here(coordinator: Caller, numbering: Numbering) -> Csr:
    """Return the rows of all vertices of a graph in this process without an order, on its device. O(n + m)."""
    rows: Csr = coordinator.call("rows", numbering.place)[0]["rows"]
    return rows


def _joined(answers: list[dict], numbering: Numbering) -> Csr:
    """Join the rows of all ranks, in rank order, with users' ids. Ranks without rows have empty answers."""
    answers = [answer for answer in answers if answer]
    if len(answers) == 1:
        offsets = joined([answers[0]["offsets"]])
    else:
        offsets = offsets_of(np.concatenate([np.diff(answer["offsets"]) for answer in answers]))
    dst = numbering.outside(joined([answer["dst"] for answer in answers]))
    weight, time = [_column(answers, name) for name in ("weight", "time")]
    return Csr(offsets, dst, weight, time=time)


def _column(answers: list[dict], name: str) -> np.ndarray | None:
    """Join a column of all ranks' rows; None if they lack it."""
    return None if answers[0].get(name) is None else joined([answer[name] for answer in answers])


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Return the offsets of rows of these lengths: int64[n + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _rows_in_order(csr: Csr, routed: Routed) -> Csr:
    """Reorder rows from the order in which they were sent to the ranks to the order of the request."""
    return csr if routed.places is None else rows_at(csr, np.argsort(routed.places))


def rows_at(csr: Csr, places: np.ndarray) -> Csr:
    """Return the rows of `csr` at these places, in their order."""
    lengths = np.diff(csr.offsets)[places]
    offsets = offsets_of(lengths)
    slots = np.arange(offsets[-1]) + np.repeat(csr.offsets[:-1][places] - offsets[:-1], lengths)
    return _gather_rows(csr, offsets, slots)


def _gather_rows(csr: Csr, offsets: np.ndarray, slots: np.ndarray) -> Csr:
    """Return rows with the columns of `csr` at these slots."""
    dst, weight, time = (None if column is None else column[slots] for column in (csr.dst, csr.weight, csr.time))
    return Csr(offsets, dst, weight, time=time)


def _sorted_rows(csr: Csr) -> Csr:
    rows = np.repeat(np.arange(len(csr.offsets) - 1), np.diff(csr.offsets))
    slots = np.lexsort((csr.dst, rows))
    return _gather_rows(csr, csr.offsets, slots)
