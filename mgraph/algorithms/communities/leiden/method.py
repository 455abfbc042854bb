"""Method `leiden`, and the check of its arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from mgraph.algorithms.algorithm import Algorithm, GraphFacts, Runs
from mgraph.algorithms.communities.leiden.program import run, warm
from mgraph.algorithms.communities.multilevel.arguments import check_levels, check_resolution, check_reverse
from mgraph.algorithms.communities.multilevel.objective import QUALITIES
from mgraph.checks import check_whole
from mgraph.errors import InvalidOption

__all__ = ["ALGORITHM", "leiden"]

T = TypeVar("T")


def leiden(
    self: Runs[T],
    resolution: float = 1.0,
    quality: str = "modularity",
    max_levels: int | None = None,
    seed: int = 0,
) -> T:
    """X."""
    return self.run("leiden", resolution=resolution, quality=quality, max_levels=max_levels, seed=seed)


def check(
    graph: GraphFacts, resolution: Any = 1.0, quality: Any = "modularity", max_levels: Any = None, seed: Any = 0
) -> dict[str, Any]:
    """Return the program's arguments."""
    check_reverse(graph, "leiden")
    if quality not in QUALITIES:
        raise InvalidOption(f'quality is {quality!r}; it must be "modularity" or "cpm"')
    return {
        "resolution": check_resolution(resolution),
        "quality": quality,
        "max_levels": check_levels(max_levels),
        "seed": 0 if seed is None else check_whole(seed, "seed") % 2**64,
    }


ALGORITHM = Algorithm(
    name="leiden",
    check=check,
    run=run,
    columns={"community": "label"},
    scalars=("quality", "communities", "levels"),
    warm=warm,
)
