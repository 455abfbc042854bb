"""``python -m workloads scaling``: the same work on one worker and on more."""

from workloads.scaling.command import HELP, add_arguments, run

__all__ = ["HELP", "add_arguments", "run"]
