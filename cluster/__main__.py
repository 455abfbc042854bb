"""``python -m cluster COMMAND``: probe a machine, or wait for a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cluster import probe, scheduler_file
from mgraph.errors import MgraphError

__all__ = ["COMMANDS", "main"]

COMMANDS = {"probe": probe, "wait": scheduler_file}


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command and return the exit status.

    0 for success, 2 for an error of the user, 130 after an interrupt.
    """
    parser = argparse.ArgumentParser(prog="python -m cluster", description="Clusters for mgraph.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(act=module.run)
    options = parser.parse_args(arguments)
    try:
        return int(options.act(options))
    except MgraphError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
