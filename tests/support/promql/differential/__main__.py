"""Random queries to this store and to a Prometheus server: `python -m support.promql.differential` in tests/.

Prints each difference with a smaller query that has one too. Exit code 1 where there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from support.promql.differential.comparison import Choice, compare_evaluator, compare_standalone
from support.promql.differential.prometheus import UPSTREAM
from support.senders.go_senders import built
from support.senders.prometheus import binary


def main() -> int:
    """Exit code 1 where answers differ."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m support.promql.differential")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--queries", type=int, default=2000, metavar="N", help="default: %(default)s")
    parser.add_argument("--differences", type=int, default=20, metavar="N", help="stop after N; default: %(default)s")
    parser.add_argument(
        "--upstream", action="store_true", help="with Prometheus 3.15, built from its Go module, not with Debian's"
    )
    parser.add_argument(
        "--standalone",
        action="store_true",
        help="a standalone process answers over HTTP, not the evaluator in this one",
    )
    parser.add_argument("--delayed-names", action="store_true", help="names go at the end of a query; with --upstream")
    arguments = parser.parse_args()
    program = built(UPSTREAM) if arguments.upstream else binary("prometheus")
    choice = Choice(arguments.seed, arguments.queries, arguments.differences)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.standalone:
            report = compare_standalone(program, Path(folder), choice, delays_names=arguments.delayed_names)
        else:
            report = compare_evaluator(program, Path(folder), choice, delays_names=arguments.delayed_names)
    print(report)
    return int(bool(report.found))


if __name__ == "__main__":
    sys.exit(main())
