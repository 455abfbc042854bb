"""Exchange of ranks on several hosts: shared memory within a host, and one message per pair of hosts between them.

The ranks of a host are a group, with a `PeerExchange` of its own. For each pair of groups, a gateway on either side
has an exchange of two. A collective has three steps: each rank gives the gateways its data for other groups, the
gateways swap them, and give the ranks of their group the data that came.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn, TypeVar

import numpy as np

from mgraph.device import Device
from mgraph.errors import Aborted, WorkerLost
from mgraph.exchange.cargo import Cargo, swap_cargo
from mgraph.exchange.common import another_call, call_code, check_addresses, check_parts
from mgraph.exchange.contract import Array, Exchange
from mgraph.exchange.groups import Groups
from mgraph.exchange.links import Link
from mgraph.plain import pack, unpack

__all__ = ["GroupedExchange"]

NOTHING = np.zeros(0, np.uint8)

T = TypeVar("T")


class GroupedExchange(Exchange):
    """Collectives among ranks in groups.

    Parameters
    ----------
    rank, size, aborted
        As in `Exchange`.
    device : Device
        The device of the arrays.
    groups : Groups
    open_part : callable
        ``open_part(exchange, ranks, suffix)`` opens an exchange of some ranks, this one among them; `suffix` tells
        apart the exchanges of a rank.

    Notes
    -----
    A call of `gather_values` or `allreduce` is one message per pair of groups and direction; `alltoallv` and
    `allgather` are two, of lengths (unless they are known) and of data (unless there are none). If a step fails, the
    ranks of the other groups raise `Aborted`.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        aborted: Callable[[], bool],
        device: Device,
        *,
        groups: Groups,
        open_part: Callable[[str, Sequence[int], str], Exchange],
    ) -> None:
        super().__init__(rank, size, aborted)
        self._device, self._groups, self._over = device, groups, ""
        self._own = groups.of[rank]
        self.mates = self._members = groups.members(self._own)
        self._pairs: dict[int, Exchange] = {}
        # The ranks of other groups that each rank of the group is the gateway for.
        self._away = {r: [t for g in groups.partners(r) for t in groups.members(g)] for r in self._members}
        self._group = open_part("peer" if len(self._members) > 1 else "loopback", self._members, "")
        try:
            for other in groups.partners(rank):
                low, high = sorted((self._own, other))
                gateways = groups.gateway(low, high), groups.gateway(high, low)
                self._pairs[other] = open_part(groups.network, gateways, f"/{low}-{high}")
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> bytes:
        """The addresses of this rank's exchanges, within its group and with others."""
        pairs = {other: pair.address.hex() for other, pair in self._pairs.items()}
        return json.dumps({"group": self._group.address.hex(), "pairs": pairs}).encode()

    def connect(self, addresses: Sequence[bytes]) -> None:
        """Connect to the ranks of the group, and to the gateways of other groups. Errors as in their exchanges."""
        check_addresses(addresses, self.size)
        places = [json.loads(bytes(address)) for address in addresses]

        def connect() -> None:
            self._group.connect([bytes.fromhex(places[r]["group"]) for r in self._members])
            try:
                for other, pair in self._pairs.items():
                    ends = sorted([(self._own, other), (other, self._own)])
                    gateways = [(self._groups.gateway(a, b), str(b)) for a, b in ends]
                    pair.connect([bytes.fromhex(places[r]["pairs"][end]) for r, end in gateways])
            except Exception as error:
                self._group.gather_values(np.frombuffer(str(error).encode(), np.uint8), "allgather")
                raise
            # Another rank of the group may have failed to reach its gateways.
            for why in self._group.gather_values(NOTHING, "allgather"):
                if len(why):
                    raise WorkerLost(why.tobytes().decode())

        self._run(connect)

    def gather_values(self, values: np.ndarray, call: str) -> list[np.ndarray]:
        """Implement `Exchange.gather_values`: one message per pair of groups."""
        return self._run(lambda: self._gather_values(values, call))

    def alltoallv(self, parts: Sequence[Array], lengths: np.ndarray | None = None) -> list[Array]:
        """Implement `Exchange.alltoallv`."""
        check_parts(parts, self.size)
        return self._run(lambda: self._alltoallv(parts, lengths))

    def allgather(self, part: Array) -> list[Array]:
        """Implement `Exchange.allgather`."""
        return self._run(lambda: self._allgather(part))

    def carry(self, words: np.ndarray, cargo: Cargo) -> list[np.ndarray]:
        """Implement `Exchange.carry`: one message per pair of groups."""
        return self._run(lambda: self._carry(words, cargo))

    def links(self) -> list[Link] | None:
        """Implement `Exchange.links`."""
        links = []
        for other, pair in self._pairs.items():
            for link in pair.links() or ():
                fail = partial(self._fail, link.fail)
                links.append(link._replace(ranks=self._groups.members(other), fail=fail))
        return links if len(links) == len(self._pairs) else None

    def _fail(self, fail: Callable[..., NoReturn], *why: Any) -> NoReturn:
        """Implement `Link.fail`: all pairs are closed, so that no other group waits for this rank."""
        self._run(lambda: fail(*why))
        raise AssertionError("fail has raised no error")

    def close(self) -> None:
        """Close all exchanges, from any thread. A running call of another thread ends at once."""
        self._over = self._over or "was closed"
        self._close_pairs()
        self._group.close()
        self.close_world()

    def _close_pairs(self) -> None:
        for pair in self._pairs.values():
            pair.close()

    # ---- collectives -------------------------------------------------------------------------------------------------

    def _run(self, call: Callable[[], T]) -> T:
        """Run a call. After the first failure no further call is possible, and other groups are told."""
        if self._over or self.aborted():
            raise Aborted(f"{self._here()}: the exchange {self._over or 'was aborted'}")
        try:
            return call()
        except BaseException as error:
            self._over = self._over or f"failed before: {error}"
            self._close_pairs()
            if isinstance(error, Aborted):
                why = self._over if self._over == "was closed" else "was aborted"
                raise Aborted(f"{self._here()}: the exchange {why} ({error})") from None
            raise

    def _here(self) -> str:
        return f"rank {self.rank} of {self.size}"

    def _gather_values(self, values: np.ndarray, call: str) -> list[np.ndarray]:
        # Within the group, then between gateways: a call's code, and the values of each rank of the group.
        code = call_code(call, values.dtype)
        every = dict(zip(self._members, self._group.gather_values(values, call), strict=True))
        mine, theirs = _as_array((code, *every.values())), list[bytes]()
        try:
            for other, pair in self._pairs.items():
                theirs.append(pair.gather_values(mine, "allgather")[self._side(other)].tobytes())
                self._compare(code, unpack(theirs[-1])[0], other)
        except BaseException:
            self._group.gather_values(NOTHING, call)  # tell the group that this gateway failed
            raise

        # Within the group: the blocks that the gateways have received.
        brought = self._group.gather_values(_as_array(theirs), call)
        for gateway, packed in zip(self._members, brought, strict=True):
            if not len(packed):
                raise Aborted(f"rank {gateway} has lost its connection to another group")
            for other, block in zip(self._groups.partners(gateway), unpack(packed.tobytes()), strict=True):
                every.update(zip(self._groups.members(other), unpack(block)[1:], strict=True))
        return [every[r] for r in range(self.size)]

    def _carry(self, words: np.ndarray, cargo: Cargo) -> list[np.ndarray]:
        # Gather the words of the group, whose ranks are then ready; then gateways swap words and cargo.
        mine = dict(zip(self._members, self._group.gather_values(words, "swap"), strict=True))
        every = dict(mine)
        try:
            for other, pair in self._pairs.items():
                ends = [self._members, self._groups.members(other)]
                every |= swap_cargo(pair, ends if pair.rank == 0 else ends[::-1], mine, cargo)
        except BaseException:
            self._group.gather_values(words[:0], "swap")  # tell the group that this gateway failed
            raise
        # The gateways have unloaded the cargo: they give the words of other groups to their own.
        theirs = [every[r] for r in self._away[self.rank]]
        brought = self._group.gather_values(np.concatenate([words[:0], *theirs]), "swap")
        for (gateway, ranks), came in zip(self._away.items(), brought, strict=True):
            if len(came) != len(ranks) * len(words):
                raise Aborted(f"rank {gateway} has lost its connection to another group")
            every.update(zip(ranks, came.reshape(-1, len(words)), strict=True))
        return [every[r] for r in range(self.size)]

    def _side(self, other: int) -> int:
        """Return the rank of the other gateway in the exchange with a group."""
        return int(other > self._own)

    def _compare(self, code: int, theirs: int, other: int) -> None:
        if theirs != code:
            raise another_call(self._here(), code, self._groups.gateway(other, self._own), theirs)

    def _lengths(self, call: str, dtype: np.dtype, own: Sequence[int]) -> np.ndarray:
        """Return the lengths of every rank's parts, a row per rank; `ExchangeError` if a rank is in another call."""
        code = call_code(call, dtype)
        rows = self._gather_values(np.array([code, *own], np.int64), "allgather")
        for r, row in enumerate(rows):
            if row[0] != code:
                raise another_call(self._here(), code, r, int(row[0]))
        return np.stack(rows)[:, 1:]

    def _swap(self, blocks: Sequence[Array], expected: Sequence[int], fail: Callable[[], Any]) -> list[Array]:
        """Send a block to each group for which this rank is the gateway, and return theirs.

        `fail` tells the group that this failed.
        """
        received = []
        try:
            for (other, pair), block, length in zip(self._pairs.items(), blocks, expected, strict=True):
                if not len(block) and not length:
                    received.append(block)
                    continue
                parts = [block, block]
                parts[1 - self._side(other)] = block[:0]
                received.append(pair.alltoallv(parts)[self._side(other)])
        except BaseException:
            fail()
            raise
        return received

    def _take(self, bundle: Array, gateway: int, senders: Sequence[int], lengths: np.ndarray) -> dict[int, Array]:
        """Return the parts of `senders` that came by a gateway of this group."""
        ends = np.cumsum([0, *lengths]).tolist()
        if len(bundle) != ends[-1]:
            raise Aborted(f"rank {gateway} has lost its connection to another group")
        return {sender: bundle[a:b] for sender, (a, b) in zip(senders, pairwise(ends), strict=True)}

    def _alltoallv(self, parts: Sequence[Array], lengths: np.ndarray | None) -> list[Array]:
        groups, join = self._groups, self._device.concatenate
        if lengths is None:
            lengths = self._lengths("alltoallv", parts[0].dtype, [len(part) for part in parts])
        none, apart, away = parts[0][:0], np.not_equal.outer(groups.of, groups.of), self._away
        if not lengths[apart].any():  # nothing leaves a group
            received = self._group.alltoallv([parts[r] for r in self._members])
            inside = dict(zip(self._members, received, strict=True))
            return self._in_order(parts, dict.fromkeys(range(self.size), none) | inside)

        # Each rank of the group gets its part, and the parts that it sends on as a gateway.
        bundles = [join([none, *(parts[t] for t in [r] * (r != self.rank) + away[r])]) for r in self._members]
        received = self._group.alltoallv(bundles)
        result, onward = dict[int, Array](), dict[int, list[Array]]()
        for r, bundle in zip(self._members, received, strict=True):
            at = 0 if r == self.rank else int(lengths[r, self.rank])
            result[r] = bundle[:at]
            for other in self._pairs:
                end = at + int(lengths[r, list(groups.members(other))].sum())
                onward.setdefault(other, []).append(bundle[at:end])
                at = end
        # Gateways swap the blocks of their groups, by sender and then receiver.
        blocks = [join(onward[other]) for other in self._pairs]
        sizes = [lengths[np.ix_(groups.members(other), self._members)] for other in self._pairs]
        blocks = self._swap(
            blocks, [int(size.sum()) for size in sizes], lambda: self._group.alltoallv([none] * len(self._members))
        )
        # Each rank of the group gets its parts of the received blocks.
        pieces: dict[int, list[Array]] = {r: [none] for r in self._members}
        for block, size in zip(blocks, sizes, strict=True):
            ends = np.cumsum(size).reshape(size.shape)
            for row in range(len(size)):
                for k, r in enumerate(self._members):
                    pieces[r].append(block[int(ends[row, k] - size[row, k]) : int(ends[row, k])])
        brought = self._group.alltoallv([join(pieces[r]) for r in self._members])
        for gateway, bundle in zip(self._members, brought, strict=True):
            result |= self._take(bundle, gateway, away[gateway], lengths[away[gateway], self.rank])
        return self._in_order(parts, result)

    def _allgather(self, part: Array) -> list[Array]:
        groups, join = self._groups, self._device.concatenate
        lengths = self._lengths("allgather", part.dtype, [len(part)])[:, 0]
        result = dict(zip(self._members, self._group.allgather(part), strict=True))
        # Gateways swap all parts of their groups, and their groups get them all.
        mine = join([result[r] for r in self._members])
        expected = [int(lengths[list(groups.members(other))].sum()) for other in self._pairs]
        blocks = self._swap([mine] * len(self._pairs), expected, lambda: self._group.allgather(part[:0]))
        brought = self._group.allgather(join([part[:0], *blocks]))
        for gateway, bundle in zip(self._members, brought, strict=True):
            senders = [r for other in groups.partners(gateway) for r in groups.members(other)]
            result |= self._take(bundle, gateway, senders, lengths[senders])
        return self._in_order([part] * self.size, result)

    def _in_order(self, parts: Sequence[Array], received: dict[int, Array]) -> list[Array]:
        """Return the received parts in the order of ranks. The own part is the same array."""
        return [parts[r] if r == self.rank else received[r] for r in range(self.size)]


def _as_array(value: Any) -> np.ndarray:
    """Return a packed plain value, uint8[k]."""
    return np.frombuffer(pack(value), np.uint8)
