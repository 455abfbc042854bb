"""``python -m workloads longrun``: batches for a long time, with analyses between."""

from workloads.longrun.command import HELP, add_arguments, run

__all__ = ["HELP", "add_arguments", "run"]
