"""Reads of a graph: ids are sent to the ranks that own them, and the answers are put back in the order of the ids.

A read names the vertex ranges by which it was split. If they have changed meanwhile, the ranks refuse it with
`protocol.Stale`.
"""

from __future__ import annotations

import numpy as np

from mgraph.client.caller import Caller
from mgraph.client.numbering import Numbering, Routed
from mgraph.structures import Csr

__all__ = ["all_rows", "degrees", "has_edges", "neighbors"]


def has_edges(coordinator: Caller, numbering: Numbering, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Whether each edge, given by users' ids, exists: bool[n]."""
    routed = numbering.route(src)
    shares = zip(routed.deal(routed.internal), routed.deal(numbering.inside(dst)), strict=True)
    answers = coordinator.call("has_edges", _by(numbering), [{"src": s, "dst": d} for s, d in shares])
    return routed.restore([answer["found"] for answer in answers])


def degrees(coordinator: Caller, numbering: Numbering, ids: np.ndarray, direction: str) -> np.ndarray:
    """Out-degrees or in-degrees of users' ids: uint32[n]."""
    routed, common = numbering.route(ids), {**_by(numbering), "direction": direction}
    answers = coordinator.call("degrees", common, [{"ids": part} for part in routed.deal(routed.internal)])
    return routed.restore([answer["degrees"] for answer in answers])


def neighbors(coordinator: Caller, numbering: Numbering, ids: np.ndarray, direction: str) -> Csr:
    """The out-neighbours or in-neighbours of users' ids, as rows in the order of `ids`."""
    routed, common = numbering.route(ids), {**_by(numbering), "direction": direction}
    answers = coordinator.call("neighbors", common, [{"ids": part} for part in routed.deal(routed.internal)])
    return _rows_in_order(_joined(answers, numbering), routed)


def all_rows(coordinator: Caller, numbering: Numbering) -> Csr:
    """The rows of all vertices, in the order of users' ids.

    In a graph with an `order`, destinations ascend within each row and it takes O(m log m). Otherwise they come in the
    order in which the structure stores them, and it takes O(n + m).
    """
    routed = numbering.route(np.arange(numbering.n_vertices, dtype=np.uint32))
    csr = _joined(coordinator.call("neighbors", {**_by(numbering), "ids": None}), numbering)
    if numbering.order is None:
        return csr  # rows are sorted only if the structure stores them sorted, as with neighbors()
    by_internal = Routed(routed.internal, numbering.outside(np.arange(numbering.n_vertices)), routed.bounds)
    return _sorted_rows(_rows_in_order(csr, by_internal))


def _by(numbering: Numbering) -> dict:
    return {"starts": list(numbering.partition.starts), "generation": numbering.generation}


def _joined(answers: list[dict], numbering: Numbering) -> Csr:
    """The rows of all ranks, in rank order, with users' ids."""
    lengths = np.concatenate([np.diff(answer["offsets"]) for answer in answers])
    dst = numbering.outside(np.concatenate([answer["dst"] for answer in answers]))
    weighted = answers[0]["weight"] is not None if "weight" in answers[0] else False
    weight = np.concatenate([answer["weight"] for answer in answers]) if weighted else None
    return Csr(_offsets(lengths), dst, weight)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _rows_in_order(csr: Csr, routed: Routed) -> Csr:
    """The rows of `csr`, which are in the order in which they were sent to the ranks, in the order of the request."""
    if routed.places is None:
        return csr
    places = np.argsort(routed.places)  # for each requested row, its place in csr
    lengths = np.diff(csr.offsets)[places]
    offsets = _offsets(lengths)
    slots = np.arange(offsets[-1]) + np.repeat(csr.offsets[:-1][places] - offsets[:-1], lengths)
    return Csr(offsets, csr.dst[slots], None if csr.weight is None else csr.weight[slots])


def _sorted_rows(csr: Csr) -> Csr:
    rows = np.repeat(np.arange(len(csr.offsets) - 1), np.diff(csr.offsets))
    slots = np.lexsort((csr.dst, rows))
    return Csr(csr.offsets, csr.dst[slots], None if csr.weight is None else csr.weight[slots])
