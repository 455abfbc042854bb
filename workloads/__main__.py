"""``python -m workloads COMMAND``: a module per command, with HELP, add_arguments(parser) and run(options)."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from mgraph.errors import CapacityError, MgraphError

__all__ = ["COMMANDS", "main", "parser_of"]

COMMANDS = (
    "bench",
    "demo",
    "gap",
    "graphalytics",
    "hosts",
    "longrun",
    "notebooks",
    "paper",
    "report",
    "scaling",
    "stream",
    "wheel",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command and return the exit status.

    0 for success, 2 for an error of the user, 130 after an interrupt.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    # Import the module of a named command only: the demo runs without Matplotlib.
    options = parser_of(words[:1] if words[:1] and words[0] in COMMANDS else COMMANDS).parse_args(words)
    act = vars(options).pop("act")
    try:
        return int(act(options))
    except MgraphError as error:
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, CapacityError):
            _end_record()
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        _end_record()
        return 130


def parser_of(names: Sequence[str]) -> argparse.ArgumentParser:
    """Import the modules of commands, and return a parser with these as subcommands."""
    parser = argparse.ArgumentParser(prog="python -m workloads", description="Applications of mgraph.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in names:
        module = importlib.import_module(f"workloads.{name}")
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(act=module.run)
    return parser


def _end_record() -> None:
    """End the record of a run after Ctrl-C or without memory.

    It counts, and is marked as incomplete.
    """
    record = sys.modules.get("workloads.results.record")
    if record is not None and record.Record.latest is not None:
        record.Record.latest.add("end", interrupted=True)


if __name__ == "__main__":
    sys.exit(main())
