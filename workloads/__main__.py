"""``python -m workloads COMMAND``: a module per command, with HELP, add_arguments(parser) and run(options)."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgraph.errors import CapacityError, MgraphError

if TYPE_CHECKING:
    from workloads.results.record import Record

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
        status = int(act(options))
        _warn_of_slow_kernels()
        return status
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
    record = _latest_record()
    if record is not None:
        record.add("end", interrupted=True)


def _warn_of_slow_kernels() -> None:
    """Print a line if what was measured ran on a build of the CPU kernels that is for tests."""
    record = _latest_record()
    build = "plain" if record is None else record.lines[0]["host_build"]
    if build != "plain":
        print(f"MGRAPH_HOST_BUILD={build}: kernels on the host were slow in this run", file=sys.stderr)


def _latest_record() -> Record | None:
    """Return the latest record of this process, if a command has started one."""
    module = sys.modules.get("workloads.results.record")
    return None if module is None else module.Record.latest


if __name__ == "__main__":
    sys.exit(main())
