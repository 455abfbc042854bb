"""The order of test files over pytest-xdist's processes, so that cores do not idle while tests wait."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

__all__ = ["MixedScheduling"]

#: folders whose tests wait for processes, sessions and losses most of their time; those of the others compute
WAITING = tuple(
    f"tests/{folder}/"
    for folder in ("client", "cluster", "dashboard", "docs", "exchange", "graph", "local", "notebooks", "workloads")
)


class MixedScheduling(LoadFileScheduling):
    """Give every second process files that wait while there are any, and the others files that compute."""

    def _assign_work_unit(self, node: object) -> None:
        waits = self.nodes.index(node) % 2 == 1
        preferred = (file for file in self.workqueue if file.startswith(WAITING) == waits)
        if (file := next(preferred, None)) is not None:
            self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)
