"""`python -m benchmarks [SUITE ...] [--json]`: runs the suites and prints a table; exit status 1 when a target is missed."""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.rows import Row
from benchmarks.suites import SUITES


def _line(row: Row) -> str:
    target = ""
    if row.at_most is not None:
        target = f"<= {row.at_most:g}"
    elif row.at_least is not None:
        target = f">= {row.at_least:,.0f}"
    figure = f"{row.figure:,.0f}" if row.figure >= 1_000 else f"{row.figure:.2f}"
    verdict = {True: "met", False: "MISSED", None: ""}[row.is_met]
    return f"| {row.what} | {figure} {row.unit} | {target} | {verdict} |"


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="scripts/bench")
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"one or more of: {', '.join(SUITES)} (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.suites if name not in SUITES]
    if unknown:
        parser.error(f"no suite is called {unknown[0]!r}")
    missed = 0
    if not chosen.json:
        print("| what | figure | target | |\n| --- | --- | --- | --- |", flush=True)
    for name in chosen.suites or SUITES:
        for row in SUITES[name]():
            missed += row.is_met is False
            if chosen.json:
                print(
                    json.dumps(
                        {"suite": name, "what": row.what, "figure": row.figure, "unit": row.unit, "met": row.is_met}
                    )
                )
            else:
                print(_line(row), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
