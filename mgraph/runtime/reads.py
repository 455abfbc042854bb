"""Reads of a graph: each question goes to its owner, and the answers come back in the order asked.

A read says by which ranges it was dealt: where they have changed meanwhile, the ranks refuse it with `protocol.Moved`.
"""

from __future__ import annotations

import numpy as np

from mgraph.runtime.coordinator import Coordinator
from mgraph.runtime.door import Door, Routed
from mgraph.structures import Csr

__all__ = ["all_rows", "degrees", "has_edges", "neighbors"]


def has_edges(coordinator: Coordinator, door: Door, src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    """Whether each edge of users' ids is there: bool[n]."""
    routed = door.route(src)
    shares = zip(routed.deal(routed.internal), routed.deal(door.inside(dst)), strict=True)
    answers = coordinator.call("has_edges", _by(door), [{"src": s, "dst": d} for s, d in shares])
    return routed.restore([answer["found"] for answer in answers])


def degrees(coordinator: Coordinator, door: Door, ids: np.ndarray, direction: str) -> np.ndarray:
    """Degrees of users' ids, along the edges or against them: uint32[n]."""
    routed, common = door.route(ids), {**_by(door), "direction": direction}
    answers = coordinator.call("degrees", common, [{"ids": part} for part in routed.deal(routed.internal)])
    return routed.restore([answer["degrees"] for answer in answers])


def neighbors(coordinator: Coordinator, door: Door, ids: np.ndarray, direction: str) -> Csr:
    """The rows of users' ids, of the edges or of their reverse, in their order."""
    routed, common = door.route(ids), {**_by(door), "direction": direction}
    answers = coordinator.call("neighbors", common, [{"ids": part} for part in routed.deal(routed.internal)])
    return _rows_in_order(_joined(answers, door), routed)


def all_rows(coordinator: Coordinator, door: Door) -> Csr:
    """Every row, by user's id, with ascending destinations; O(m log m) where ids are permuted."""
    routed = door.route(np.arange(door.n_vertices, dtype=np.uint32))
    csr = _joined(coordinator.call("neighbors", {**_by(door), "ids": None}), door)
    if door.order is None:
        return csr  # a structure with unsorted rows leaves them so, as neighbors() does
    by_internal = Routed(routed.internal, door.outside(np.arange(door.n_vertices)), routed.bounds)
    return _sorted_rows(_rows_in_order(csr, by_internal))


def _by(door: Door) -> dict:
    return {"starts": list(door.partition.starts), "generation": door.generation}


def _joined(answers: list[dict], door: Door) -> Csr:
    """The ranks' rows one after another, with users' ids."""
    lengths = np.concatenate([np.diff(answer["offsets"]) for answer in answers])
    dst = door.outside(np.concatenate([answer["dst"] for answer in answers]))
    weighted = answers[0]["weight"] is not None if "weight" in answers[0] else False
    weight = np.concatenate([answer["weight"] for answer in answers]) if weighted else None
    return Csr(_offsets(lengths), dst, weight)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _rows_in_order(csr: Csr, routed: Routed) -> Csr:
    """Rows as they were dealt, put back in the order asked."""
    if routed.places is None:
        return csr
    places = np.argsort(routed.places)  # the dealt row that answers each row asked for
    lengths = np.diff(csr.offsets)[places]
    offsets = _offsets(lengths)
    slots = np.arange(offsets[-1]) + np.repeat(csr.offsets[:-1][places] - offsets[:-1], lengths)
    return Csr(offsets, csr.dst[slots], None if csr.weight is None else csr.weight[slots])


def _sorted_rows(csr: Csr) -> Csr:
    rows = np.repeat(np.arange(len(csr.offsets) - 1), np.diff(csr.offsets))
    slots = np.lexsort((csr.dst, rows))
    return Csr(csr.offsets, csr.dst[slots], None if csr.weight is None else csr.weight[slots])
