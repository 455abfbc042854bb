"""The cost of updating a maintained result, relative to computing it anew.

An update may visit as many edges as take as long as a full computation, if it counts them before it visits them, and
gives up after half as many if it does not. So an update that gives up, and the full computation after it, take one and
a half times as long. How many these are is measured: the work of an update is its changed arcs and the edges that it
visits, and its time is in proportion. Updates that give up, or take longer than a full computation, are suspended for
some time after three more of them than of others.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MOST_SHARE", "CostModel"]

FIRST_SHARE = 1 / 16  #: work of the first update, in arcs of the graph
LEAST_SHARE, MOST_SHARE = 1 / 1024, 1.0  #: bounds of this share
FEW = 4096  #: edges that an update may always visit
MEASURED = 1 / 64  #: of the allowed work; updates with less spend their time on other things
#: updates are suspended after TIMES that took SLOWER seconds longer, or gave up after these; each other one makes up
#: for one of them
SLOWER, TIMES = 0.002, 3
LONGEST = 16  #: maximum number of updates to suspend in a row


@dataclass
class CostModel:
    """Measured costs of a maintained result, equal on every rank.

    Attributes
    ----------
    seconds : float
        The time of the last full computation, on the slowest rank.
    share : float
        The work that an update may do, as a share of the graph's arcs.
    times, slow, pause : int
        The number of updates that took too long, less the others; the number of changed arcs of the last one; and the
        number of updates with about as many arcs to skip.
    """

    seconds: float = 0.0
    share: float = FIRST_SHARE
    times: int = 0
    slow: int = 0
    pause: int = 0

    def most(self, arcs: int, changed: int) -> int:
        """Return how many edges an update of `changed` arcs may visit; 0 if it is not worth a try.

        `arcs` are those of the graph. A call counts as an update.
        """
        if self.pause and 2 * changed >= self.slow:
            self.pause -= 1
            return 0
        most = max(int(arcs * self.share) - changed, FEW)
        return most if changed <= most else 0

    def completed(self, seconds: float, arcs: int, changed: int, visited: int) -> None:
        """Learn from an update that visited `visited` edges."""
        self._learn(seconds, arcs, changed + visited)
        if seconds <= self.seconds + SLOWER:
            self.times = max(0, self.times - 1)
        else:
            self._suspend(changed)

    def gave_up(self, seconds: float, arcs: int, changed: int, visited: int = 0) -> None:
        """Learn from an update that gave up after `visited` edges; 0 if their number is unknown."""
        if visited:
            self._learn(seconds, arcs, changed + visited)
        elif seconds > self.seconds:
            self._allow(self.share * self.seconds / seconds)
        if seconds > SLOWER:
            self._suspend(changed)

    def _learn(self, seconds: float, arcs: int, work: int) -> None:
        """Allow the work for which there is time, in proportion to `work`, unless that is too little to tell."""
        if work > max(FEW, MEASURED * arcs * self.share):
            self._allow(self.seconds * work / (max(seconds, 1e-9) * arcs))

    def _suspend(self, changed: int) -> None:
        """Count a slow update. After TIMES of them, suspend updates of this size, each time for twice as long."""
        self.times, self.slow = self.times + 1, changed
        self.pause = min(2 ** (self.times - TIMES), LONGEST) if self.times >= TIMES else 0

    def _allow(self, share: float) -> None:
        """Set the share, which at most doubles."""
        self.share = min(max(min(share, 2 * self.share), LEAST_SHARE), MOST_SHARE)
