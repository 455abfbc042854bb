"""``python -m workloads graphalytics``: the algorithms, files and validation rules of LDBC Graphalytics."""

from workloads.graphalytics.command import HELP, add_arguments, run

__all__ = ["HELP", "add_arguments", "run"]
