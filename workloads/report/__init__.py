"""``python -m workloads report``: tables and pictures of the archived benchmarks."""

from workloads.report.command import HELP, add_arguments, run

__all__ = ["HELP", "add_arguments", "run"]
