"""The cost of updating a maintained result, relative to computing it anew.

Both are compared in seconds. A full computation is expected to take as long as the last ones, and less if the graph has
shrunk. An update that counts its edges before it visits them may visit as many as a full computation has time for. An
update that does not may visit half as many before it gives up. So an update that gives up, with the full computation
after it, takes at most one and a half times as long.

The seconds per edge are learned from updates, whose work is the changed arcs and the visited edges. If few edges were
visited, the time went elsewhere, and only the number of changed arcs predicts the next update.

Updates that give up, or take longer than a full computation, are suspended: for one read, then for two and so on. A
slow update among fast ones is not suspended while recent reads take no longer than full computations in the mean. From
the second suspension in a row on, the next update may visit fewer edges. After the first it may not, because most
batches of varying sizes would then give up, too.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CostModel"]

FIRST_SHARE = 1 / 16  #: work of the first update, in arcs of the graph
FEW = 4096  #: arcs of a graph up to which updates are never suspended; fewer visited edges teach nothing
VISITED = 1 / 4  #: visited edges per changed arc from which they take most of an update's time
SHORT = 2e-5  #: excess seconds for which updates are not suspended
TRIED = 1 / 100  #: share of a full computation: updates that give up sooner are not suspended
RECENT = 4  #: reads in the mean, and the cap of a read in it, in full computations
CHEAPER = 0.6  #: if an update that gave up lowers the rate this much, the next one is tried
LONGEST = 16  #: maximum number of updates to suspend in a row
CLOSE = 1 / 2  #: share of a full computation; after `LONGEST` updates that take more, one is measured again
FADE = 1 / 64  #: decrease of a rate that forbids an update, down to the least measured rate


@dataclass
class CostModel:
    """Measured costs of a maintained result, equal on every rank. After an aborted call the ranks agree on them again.

    Attributes
    ----------
    seconds, arcs : float, int
        The time of a full computation on the slowest rank, and the arcs of the graph then.
    rate, least : float
        The seconds per edge of an update, 0 for a guess; and the least measured value, 0 before the first.
    times, slow, pause : int
        The number of updates that took too long, less the others, at least 0; the number of changed arcs of the last
        one; and the number of updates with about as many arcs to skip.
    close : int
        The number of updates since the last full computation that took nearly as long.
    mean : float
        The time of recent reads with an update, in terms of full computations.
    """

    seconds: float = 0.0
    arcs: int = 0
    rate: float = 0.0
    least: float = 0.0
    times: int = 0
    slow: int = 0
    pause: int = 0
    close: int = 0
    mean: float = 1.0

    def computed(self, seconds: float, arcs: int) -> None:
        """Learn from a full computation. A single long one, on a busy machine, counts little."""
        expected = self.fresh(arcs)
        self.seconds = (expected + min(seconds, 2 * expected)) / 2 if expected else seconds
        self.arcs, self.close = arcs, 0

    def fresh(self, arcs: int) -> float:
        """Return the expected seconds of a full computation in a graph of `arcs`; 0 before the first.

        A graph that has grown is not expected to take longer. If it does, updates are suspended too early, and the next
        full computation tells. An estimate that is too long would never be corrected.
        """
        return self.seconds * min(max(arcs, 1) / max(self.arcs, 1), 1)

    def most(self, arcs: int, changed: int) -> int:
        """Return how many edges an update of `changed` arcs may visit; 0 if it is not worth a try.

        `arcs` are those of the graph. A call counts as an update.
        """
        if arcs <= FEW:
            return FEW
        times = self.times if 2 * changed >= self.slow else 0  # much smaller batches have done no harm
        if self.pause and times:
            self.pause -= 1
            return 0
        most = int(self.fresh(arcs) / self._rate(arcs)) // max(1, times) - (changed if self.least else 0)
        if most <= 0:
            self._fade()
        return max(most, 0)

    def completed(self, seconds: float, arcs: int, changed: int, visited: int) -> None:
        """Learn from an update that visited `visited` edges."""
        self._learn(seconds, arcs, changed, visited)
        expected = self.fresh(arcs)
        slow, longer = self._slow(seconds, arcs), seconds - expected
        self.close += seconds > CLOSE * expected
        if slow and longer > SHORT:
            self._suspend(changed)
        elif self.close < LONGEST:
            self.times = max(0, self.times - 1)
        else:
            self.times, self.slow, self.pause, self.close = 1, changed, 1, 0

    def gave_up(self, seconds: float, arcs: int, changed: int, visited: int = 0) -> None:
        """Learn from an update that gave up after `visited` edges; 0 if it has only counted what it would visit."""
        before = self._rate(arcs)
        if visited:
            self._learn(seconds, arcs, changed, visited)
        elif self.least:
            self._fade()
        else:
            self.rate = self._rate(arcs) / 2  # a guess that was never tried
        cheaper = self._rate(arcs) <= CHEAPER * before and visited and seconds < self.fresh(arcs) / 2
        self._slow(seconds + self.fresh(arcs), arcs)
        if seconds > TRIED * self.fresh(arcs) + SHORT and not cheaper:
            self._suspend(changed)

    def _rate(self, arcs: int) -> float:
        return max(self.rate or self.fresh(arcs) / (FIRST_SHARE * max(arcs, 1)), 1e-15)

    def _learn(self, seconds: float, arcs: int, changed: int, visited: int) -> None:
        """Take the seconds per edge of an update, unless it visited too few. They at most halve.

        They rise only if the update took long: a short one spends its time on other things.
        """
        if changed + visited > FEW and visited >= VISITED * changed:
            measured = seconds / (changed + visited)
            if measured < self._rate(arcs) or seconds > self.fresh(arcs) / 2:
                self.rate = max(measured, self._rate(arcs) / 2)
            self.least = min(measured, self.least) if self.least else measured

    def _fade(self) -> None:
        """Return to the least rate little by little: on a busy machine, updates take longer than they need."""
        self.rate = max(min(self.least, self.rate), self.rate * (1 - FADE))

    def _slow(self, seconds: float, arcs: int) -> bool:
        """Take a read into the mean. Returns True if recent ones were too slow in the mean."""
        share = seconds / max(self.fresh(arcs), 1e-15)
        self.mean += (min(share, RECENT) - self.mean) / RECENT
        return self.mean > 1

    def _suspend(self, changed: int) -> None:
        """Suspend updates of this size."""
        self.times, self.slow = 1 if 2 * changed < self.slow else self.times + 1, changed
        self.pause = min(2 ** (self.times - 1), LONGEST)
