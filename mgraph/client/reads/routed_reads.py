"""Reads by the owners of rows: ids are sent to the ranks that own them, and the answers put back in their order.

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
    """Whether each edge, given as users name vertices, exists: bool[n]."""
    return _asked(coordinator, numbering, "has_edges", "found", numbering.place, _edges(numbering, src, dst))


def weights(coordinator: Caller, numbering: Numbering, src: Any, dst: Any) -> np.ndarray:
    """The weight of each edge, given as users name vertices, or NaN: float32[n]."""
    return _asked(coordinator, numbering, "weights", "weights", numbering.place, _edges(numbering, src, dst))


def _edges(numbering: Numbering, src: Any, dst: Any) -> dict[str, np.ndarray]:
    """Edges as users name vertices, in users' ids."""
    src, dst = numbering.ids(src, "src"), numbering.ids(dst, "dst")
    if src.shape != dst.shape:
        raise InvalidBatch(f"src has shape {src.shape} and dst has shape {dst.shape}; both need the same length")
    return {"src": src, "dst": dst}


def _asked(
    coordinator: Caller, numbering: Numbering, method: str, answer: str, common: dict, columns: dict[str, np.ndarray]
) -> np.ndarray:
    """What the owners of rows answer, one value for each, in their order; columns of users' ids, the rows first."""
    if numbering.order is not None:
        columns = {name: numbering.order[ids] for name, ids in columns.items()}
    if numbering.partition.size == 1:
        return joined([coordinator.call(method, common, [columns])[0][answer]])
    routed = numbering.group(next(iter(columns.values())))
    dealt = zip(*[routed.deal(ids) for ids in columns.values()], strict=True)
    answers = coordinator.call(method, common, [dict(zip(columns, parts, strict=True)) for parts in dealt])
    return routed.restore([one[answer] for one in answers])


def degrees(coordinator: Caller, numbering: Numbering, vertices: Any, direction: str) -> np.ndarray:
    """Out-degrees or in-degrees of vertices as users name them, or of all: uint32[n]."""
    if vertices is None:
        ids = np.arange(numbering.n_vertices, dtype=np.uint32)
    else:
        ids = numbering.ids(vertices, "ids")
    return _asked(
        coordinator, numbering, "degrees", "degrees", {**numbering.place, "direction": direction}, {"ids": ids}
    )


def neighbors(coordinator: Caller, numbering: Numbering, vertices: Any, direction: str, time: bool = False) -> Csr:
    """The out-neighbours or in-neighbours of vertices, all as users name them, as rows in the order of `vertices`."""
    rows = rows_of(coordinator, numbering, numbering.ids(vertices, "ids"), direction, time)
    return rows if numbering.keys is None else replace(rows, dst=numbering.names(rows.dst))


def rows_of(
    coordinator: Caller, numbering: Numbering, ids: np.ndarray, direction: str = "out", time: bool = False
) -> Csr:
    """As `neighbors`, of users' ids, and in them: in a graph with keys these are places in `vertices`."""
    routed = numbering.route(ids)
    common = {**numbering.place, "direction": direction, **({"time": True} if time else {})}
    answers = coordinator.call("neighbors", common, [{"ids": part} for part in routed.deal(routed.internal)])
    return _rows_in_order(_joined(answers, numbering), routed)


def fingerprint(directory: Directory) -> int:
    """A hash of the set of edges; see `DynamicGraph.fingerprint`."""
    with directory.still() as keys:
        given = {} if keys is None else {"hashes": keys.hashes(directory.n_vertices)}
        return sum(answer["hash"] for answer in directory.coordinator.call("fingerprint", given)) % 2**64


def all_rows(coordinator: Caller, numbering: Numbering, time: bool = False) -> Csr:
    """The rows of all vertices, in the order of users' ids; with `time` their times too.

    In a graph with an `order`, destinations ascend within each row and it takes O(m log m). Otherwise they come in the
    order in which the structure stores them, and it takes O(n + m).
    """
    routed = numbering.route(np.arange(numbering.n_vertices, dtype=np.uint32))
    common = {**numbering.place, "ids": None, **({"time": True} if time else {})}
    csr = _joined(coordinator.call("neighbors", common), numbering)
    if numbering.order is None:
        return csr  # rows are sorted only if the structure stores them sorted, as with neighbors()
    by_internal = Routed(routed.internal, numbering.outside(np.arange(numbering.n_vertices)), routed.bounds)
    return _sorted_rows(_rows_in_order(csr, by_internal))


def rows_here(coordinator: Caller, numbering: Numbering) -> Csr:
    """The rows of all vertices of a graph in this process and without an order, on its device. O(n + m)."""
    rows: Csr = coordinator.call("rows", numbering.place)[0]["rows"]
    return rows


def _joined(answers: list[dict], numbering: Numbering) -> Csr:
    """The rows of all ranks, in rank order, with users' ids."""
    if len(answers) == 1:
        offsets = joined([answers[0]["offsets"]])
    else:
        offsets = offsets_of(np.concatenate([np.diff(answer["offsets"]) for answer in answers]))
    dst = numbering.outside(joined([answer["dst"] for answer in answers]))
    weight, time = [_column(answers, name) for name in ("weight", "time")]
    return Csr(offsets, dst, weight, time=time)


def _column(answers: list[dict], name: str) -> np.ndarray | None:
    """A column of all ranks' rows, if there is one."""
    return None if answers[0].get(name) is None else joined([answer[name] for answer in answers])


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """The offsets of rows of these lengths: int64[n + 1]."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _rows_in_order(csr: Csr, routed: Routed) -> Csr:
    """The rows of `csr`, which are in the order in which they were sent to the ranks, in the order of the request."""
    return csr if routed.places is None else rows_at(csr, np.argsort(routed.places))


def rows_at(csr: Csr, places: np.ndarray) -> Csr:
    """The rows of `csr` at these places, in their order."""
    lengths = np.diff(csr.offsets)[places]
    offsets = offsets_of(lengths)
    slots = np.arange(offsets[-1]) + np.repeat(csr.offsets[:-1][places] - offsets[:-1], lengths)
    return _taken(csr, offsets, slots)


def _taken(csr: Csr, offsets: np.ndarray, slots: np.ndarray) -> Csr:
    """Rows with the columns of `csr` at these slots."""
    dst, weight, time = (None if column is None else column[slots] for column in (csr.dst, csr.weight, csr.time))
    return Csr(offsets, dst, weight, time=time)


def _sorted_rows(csr: Csr) -> Csr:
    rows = np.repeat(np.arange(len(csr.offsets) - 1), np.diff(csr.offsets))
    slots = np.lexsort((csr.dst, rows))
    return _taken(csr, csr.offsets, slots)
