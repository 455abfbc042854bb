"""Groups of ranks that map each other's memory, usually those of a host, and who carries messages between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mgraph.errors import InvalidOption

__all__ = ["NETWORKS", "WITHIN", "Apart", "Groups", "network_of"]

NETWORKS = ("tcp", "ucx")  #: exchanges between groups
WITHIN = "peer+"  #: the first part of the names of exchanges with groups


class Apart(NamedTuple):
    """Why ranks cannot map each other's memory, and the group of each rank; empty if they can.

    The ranks of a group map each other's memory.
    """

    why: str = ""
    groups: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.why)


def network_of(exchange: str) -> str:
    """Return the name of the exchange that leaves a host: "tcp" for "peer+tcp:0,0,1,1"."""
    return exchange.partition(":")[0].removeprefix(WITHIN)


@dataclass(frozen=True)
class Groups:
    """The group of each rank, from 0 up in the order of their first ranks, and the exchange between groups.

    Each pair of groups has a gateway on either side: a rank that sends what its group has for the other. A group's
    gateways are different ranks, as far as it has enough.
    """

    of: tuple[int, ...]
    network: str

    @classmethod
    def by_reach(cls, reach: Sequence[Iterable[int]]) -> tuple[int, ...]:
        """Return the groups of ranks of which each maps the memory of all others.

        `reach` has the ranks that each rank can map. Where these make no groups, each rank is a group.
        """
        mutual = [
            frozenset(r for r in ranks if rank in reach[r]) | {rank} for rank, ranks in enumerate(map(set, reach))
        ]
        if any(mutual[r] != ranks for ranks in mutual for r in ranks):
            return tuple(range(len(reach)))
        firsts = sorted({min(ranks) for ranks in mutual})
        return tuple(firsts.index(min(ranks)) for ranks in mutual)

    @classmethod
    def parse(cls, exchange: str, size: int) -> Groups | None:
        """Return the groups of an exchange's name such as "peer+tcp:0,0,1,1"; None if it has no groups.

        Raises `InvalidOption` if they are not those of `size` ranks.
        """
        name, _, listed = exchange.partition(":")
        if not name.startswith(WITHIN) or not listed:
            return None
        network = name.removeprefix(WITHIN)
        try:
            of = tuple(int(group) for group in listed.split(","))
        except ValueError:
            of = ()
        firsts = [group for rank, group in enumerate(of) if group not in of[:rank]]
        if network not in NETWORKS or len(of) != size or firsts != list(range(len(firsts))):
            raise InvalidOption(
                f"exchange {exchange!r} needs a group for each of {size} workers, from 0 up by their first workers, "
                f"and one of {', '.join(WITHIN + network for network in NETWORKS)}"
            )
        return cls(of, network)

    def __str__(self) -> str:
        return f"{WITHIN}{self.network}:{','.join(map(str, self.of))}"

    @property
    def count(self) -> int:
        """The number of groups."""
        return max(self.of) + 1

    def members(self, group: int) -> tuple[int, ...]:
        """Return the ranks of a group."""
        return tuple(rank for rank, of in enumerate(self.of) if of == group)

    def gateway(self, group: int, other: int) -> int:
        """Return the rank of `group` that sends to the group `other` and receives from it."""
        members = self.members(group)
        return members[(other - (other > group)) % len(members)]

    def partners(self, rank: int) -> list[int]:
        """Return the groups for which a rank is the gateway of its own, in the order in which it meets them.

        In each turn a group meets at most one other, in whose order it is the same turn, so no rank waits for ever.
        """
        group, count = self.of[rank], self.count
        others = [(turn - group) % count for turn in range(count)]
        return [other for other in others if other != group and self.gateway(group, other) == rank]
