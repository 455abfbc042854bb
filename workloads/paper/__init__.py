"""``python -m workloads paper NAME``: the experiments of the five papers, on our structures."""

from workloads.paper.command import HELP, add_arguments, run

__all__ = ["HELP", "add_arguments", "run"]
