"""``python -m workloads bench``: one module says what is measured, `workloads.bench.harness` how."""

from workloads.bench.command import HELP, add_arguments, run

__all__ = ["HELP", "add_arguments", "run"]
