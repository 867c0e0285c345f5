"""Prometheus's own test scripts, where they are found beside the checkout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[4] / "shared" / "data" / "promqltest"

_EVAL = re.compile(r"eval(?:_\w+)? (?:instant at \S+|range from \S+ to \S+ step \S+) (.*)")
_FAILS = re.compile(r"\s+expect fail")


def queries() -> Iterator[str]:
    """Queries that are expected to succeed."""
    for path in sorted(FOLDER.glob("*.test")):
        lines = path.read_text().split("\n")
        for number, line in enumerate(lines):
            match = _EVAL.fullmatch(line)
            fails = line.startswith("eval_fail") or any(map(_FAILS.match, lines[number + 1 : number + 6]))
            if match is not None and not fails:
                yield match.group(1)
