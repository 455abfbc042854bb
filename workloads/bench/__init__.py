"""``python -m workloads bench``: a module per measurement, on the harness of `workloads.bench.harness`."""

from workloads.bench.command import HELP, add_arguments, run

__all__ = ["HELP", "add_arguments", "run"]
