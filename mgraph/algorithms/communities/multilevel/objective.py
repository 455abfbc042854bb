"""Quality functions of communities: modularity, and the constant Potts model."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QUALITIES", "Objective"]

QUALITIES = ("modularity", "cpm")


@dataclass(frozen=True)
class Objective:
    """A quality function, in which weights are whole numbers of a unit (`primitives.weight_sums`).

    Both compare the weight inside of communities with an expected weight: `price` times the products of the strengths
    of a community's vertices. In the constant Potts model (CPM) the strength of a vertex is the number of vertices in
    it. A directed graph has strengths of out- and of in-edges.

    Parameters
    ----------
    name : "modularity" | "cpm"
    resolution : float
    directed : bool
    unit : float
        Weight 1 in units.
    total : int
        The weight of all edges, both ways.
    mean : float
        The mean weight of an edge, in units.
    """

    name: str
    resolution: float
    directed: bool
    unit: float = 1.0
    total: int = 0
    mean: float = 1.0

    @property
    def price(self) -> float:
        """The expected weight of an edge between vertices of strength 1, in units."""
        if self.name == "cpm":
            return self.resolution * self.unit
        return self.resolution / (self.total / 2 if self.directed else self.total)

    def value(self, inside: int, products: float) -> float:
        """Return the quality as a share of `total`: the modularity, or the CPM without its constant term.

        `inside` is the weight inside of communities, both ways; `products` the sum over the communities of the product
        of both strengths.
        """
        if not self.total:
            return 0.0
        if self.name == "cpm":
            return (inside - (1 + self.directed) * self.price * products) / self.total
        scale = self.total / 2 if self.directed else self.total
        return inside / self.total - self.resolution * products / scale / scale

    def quality(self, value: float, n: int) -> float:
        """Return the quality that users get, of a graph of `n` vertices with this `value`."""
        if self.name == "cpm" and self.total:
            return value * self.total / 2 / self.unit + (1 + self.directed) / 2 * self.resolution * n
        return value
