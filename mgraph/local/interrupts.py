"""Deferred Ctrl-C: the running call is stopped first."""

from __future__ import annotations

from mgraph.client.calls.deferred_ctrl_c import DeferredCtrlC

__all__ = ["Interrupts"]


class Interrupts(DeferredCtrlC):
    """Stop flag of the running call, and a deferral of Ctrl-C, which would come even in the middle of a commit.

    The call's exchange polls `stopped`, so the call ends between two supersteps, or before it votes on a change.

    Attributes
    ----------
    closed : bool
        True after the graph was closed, by any thread. No call continues then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def stopped(self) -> bool:
        """Return True if the running call must stop."""
        return self.closed or self._hit

    def __exit__(self, *error: object) -> None:
        deferred = self._before is not None
        self.end()
        # The application's own handler has raised nothing, and the call was stopped all the same.
        if deferred and self._hit and error[0] is not None:
            raise KeyboardInterrupt
