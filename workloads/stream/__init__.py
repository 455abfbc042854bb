"""``python -m workloads stream``: a stream of updates, applied in batches."""

from workloads.stream.command import HELP, add_arguments, run

__all__ = ["HELP", "add_arguments", "run"]
