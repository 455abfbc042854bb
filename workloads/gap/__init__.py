"""``python -m workloads gap``: the GAP benchmark on its generated graphs."""

from workloads.gap.command import HELP, add_arguments, run

__all__ = ["HELP", "add_arguments", "run"]
