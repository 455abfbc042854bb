"""What clients were told, and what they read: the judge of a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Contents", "History", "Violation"]

Contents = tuple[int, list[tuple[int, int]], set[tuple[int, int]]]  #: of a rank: epoch, history, edges


class Violation(Exception):
    """A promise that was broken."""


@dataclass
class History:
    """All changes of a run, by their numbers.

    Attributes
    ----------
    edges : list of int
        The number of edges of each change.
    refused : set of int
        Changes of which an error was given, or which a read did not have after they had ended.
    epochs : dict of int to int
        By epoch, the changes that somebody was told of or has read.
    durable : int
        An epoch that was reported to be on the disks.
    forgetful : bool
        True if a machine that stops loses what is not `durable`.
    damaged : bool
        True if the disk may have damaged what it was given, so that epochs may be missing.
    created : bool
        True if the store was acknowledged.
    flipped : str
        The file of which a bit has flipped, until the store is opened.
    torn : bool
        True if that bit is in what no other record calls synced, so that it looks torn by a crash. If it is in a
        refusal, the refused change is back.
    repaired : bool
        True if the store was opened without what comes behind the damage.
    lineage : int
        Grows when told epochs may be lost. A client that was paused then still reads answers of an earlier lineage.
    """

    forgetful: bool = False
    damaged: bool = False
    edges: list[int] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)
    epochs: dict[int, int] = field(default_factory=dict)
    durable: int = 0
    created: bool = False
    flipped: str = ""
    torn: bool = False
    repaired: bool = False
    lineage: int = 0
    stops: int = 0  # of the machine
    stopped: bool = False  # since the last opening the machine stopped
    acknowledged: int = 0  # changes, in all
    unknown: set[int] = field(default_factory=set)  # changes that ended, and may be there
    undecided: set[int] = field(default_factory=set)  # the same, until the store is opened

    def begin(self, edges: int) -> int:
        """Return the number of a new change."""
        self.edges.append(edges)
        return len(self.edges) - 1

    def acknowledge(self, number: int, epoch: int, lineage: int) -> None:
        """Note that a change was reported as an epoch, by a graph that was opened in this lineage."""
        self.acknowledged += 1
        if lineage == self.lineage:
            self._note(epoch, number)
        else:  # the store may have lost the change since, and another one may be this epoch
            self.unknown.add(number)

    def refuse(self, number: int) -> None:
        """Note that a change raised an error that says it was not made."""
        if number in self.epochs.values():
            raise Violation(f"change {number} is refused, and was read before")
        self.refused.add(number)

    def _note(self, epoch: int, number: int) -> None:
        if self.epochs.setdefault(epoch, number) != number:
            raise Violation(f"epoch {epoch} is change {number}, and was change {self.epochs[epoch]}")

    def power_off(self) -> None:
        """Note that the machine stops."""
        self.stopped, self.stops = True, self.stops + 1
        self.lineage += self.forgetful

    def open(self) -> int:
        """Note that the store was created or opened. Return the lineage of the graph."""
        self.created = True
        self.lineage += self.damaged
        return self.lineage

    def begin_read(self) -> tuple[int, set[int]]:
        """Return what a read that begins now must have: the last epoch; and which changes have ended."""
        return max(self.epochs, default=0), self.unknown | self.undecided

    def read(self, ranks: list[Contents], since: tuple[int, set[int]], lineage: int, opened: bool = False) -> int:
        """Check a read of all ranks, which began at `since`, of a graph that was opened in this lineage.

        `opened` if it is the first read of an opened store. Returns the epoch.
        """
        floor, ended = since
        # All ranks have one history, without a hole, and no epoch in part.
        epoch, history, _ = ranks[0]
        for rank, (other, events, _) in enumerate(ranks):
            if (other, events) != (epoch, history):
                raise Violation(f"rank 0 has epoch {epoch}, {history}, and rank {rank} epoch {other}, {events}")
        numbers = [number for _, number in history]
        if [at for at, _ in history] != list(range(1, epoch + 1)) or len(set(numbers)) != epoch:
            raise Violation(f"epochs are out of order, or a change is there twice: {history}")
        edges = sorted(edge for _, _, part in ranks for edge in part)
        expected = sorted((number, dst) for number in numbers for dst in range(self.edges[number]))
        if edges != expected:
            raise Violation(f"the edges of {numbers} are {edges}, not {expected}")

        if lineage != self.lineage:  # the store may have lost some of these changes since, and have others
            return epoch

        # What was told is there, but for what a machine that stopped, or a disk that lies, may lose.
        given_up = self.damaged or self.repaired or self.torn
        if opened and self.torn:
            self.refused -= set(numbers[-1:])
        lost = given_up or (self.forgetful and self.stopped)
        if opened and lost and epoch < floor and (given_up or epoch >= self.durable):
            self.epochs = {at: number for at, number in self.epochs.items() if at <= epoch}
        elif epoch < floor:
            raise Violation(f"epoch {floor} was told, durable up to {self.durable}, and epoch {epoch} was read")
        if opened:
            self.stopped = self.repaired = self.torn = False
            self.flipped = ""
        if self.damaged and opened:
            self.epochs = {}
        for at, number in history:
            self._note(at, number)
        if (back := self.refused & set(numbers)) and not self.damaged:
            raise Violation(f"changes {back} were refused, and are there")
        # What has ended, and is not there, never comes.
        if not opened:
            ended = ended - self.undecided
        self.unknown -= ended
        self.undecided -= ended
        self.refused |= ended - set(numbers)
        return epoch
