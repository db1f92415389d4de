"""The command line: `runstone run` and its kin.

Rule: what the user can mend is one sentence on stderr and exit status 2; a traceback is a bug of ours.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from runstone.cli import run, runs, sessions
from runstone.cli.printing import plain
from runstone.errors import BackendError, ConfigError, NotFound, StorageUnavailable
from runstone.version import __version__


def parser() -> argparse.ArgumentParser:
    """The grammar of the command line."""
    whole = argparse.ArgumentParser(prog="runstone", description="Serve an agent over every protocol.")
    whole.add_argument("--version", action="version", version=f"runstone {__version__}")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in (run, runs, sessions):
        command.add_to(commands)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status."""
    options = parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except (ConfigError, StorageUnavailable) as e:
        print(f"runstone: {e.message}", file=sys.stderr)
        return 2
    except (BackendError, NotFound) as e:
        print(f"runstone: {plain(e.message)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read has had enough; nothing more may be written, not even at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    return status
