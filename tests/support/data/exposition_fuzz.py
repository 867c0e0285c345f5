"""Mutated pages of expositions, from a seed: each page a list of lines."""

from __future__ import annotations

import random
from collections.abc import Iterator

SEEDS = (
    "# HELP http_requests_total Requests, by \\\\ and \\n.",
    "# TYPE http_requests_total counter",
    'http_requests_total{method="post",code="200"} 1027 1395066363000',
    'http_requests_total{method="post",code="200"} 1027 # {trace_id="KOO5S4vxi0o"} 0.67',
    'a{x="1"} 3 # {t="a"} 0.5 1395066363.123',
    'msdos_file_access_time_seconds{path="C:\\\\DIR\\\\FILE.TXT",error="not\\nfound \\"FILE\\""} 1.458255915e9',
    '{"a.name",b="c"} 2',
    'h_bucket{le="+Inf"} 144320',
    "metric_without_labels 12.47",
    "weird -Inf -3982045",
    'x{a="}",b="{"} NaN',
    "# EOF",
)
PIECES = (
    '"',
    "\\",
    "{",
    "}",
    "=",
    ",",
    " ",
    "#",
    " # {",
    "\t",
    "\r",
    '="',
    '"}',
    "} ",
    '\\"',
    "\x00",
    "\u00a0",
    "é",
    "1",
    "e",
    "_",
)


def pages(seed: int, count: int) -> Iterator[list[str]]:
    """`count` pages of one to four lines each."""
    chance = random.Random(seed)
    for _ in range(count):
        yield [_mutated(chance, chance.choice(SEEDS)) for _ in range(chance.randint(1, 4))]


def _mutated(chance: random.Random, line: str) -> str:
    for _ in range(chance.randint(0, 6)):
        at = chance.randint(0, len(line))
        match chance.randint(0, 3):
            case 0:
                line = line[:at] + chance.choice(PIECES) * chance.choice((1, 1, 1, 2, 40)) + line[at:]
            case 1:
                line = line[:at] + line[at + chance.randint(1, 5) :]
            case 2:
                line = line[:at] + chance.choice(SEEDS)[chance.randint(0, 20) :]
            case _:
                line = line[: max(1, at)] * 2
    return line
