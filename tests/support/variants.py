"""Variants of servers: of a test over two kinds of log or history every run takes one, and `make soak` the other.

The contract suite runs over all kinds in every run: it holds that they behave alike. Other tests take the embedded
kind, or the one that their mark `variant` names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

CONTRACTS = "tests/contract/"
# Parameter of a fixture -> kind of servers.
EMBEDDED, REAL = {"sqlite", "embedded"}, {"kafka", "cassandra", "servers", "real"}


def leave_others_to_soak(items: Sequence[pytest.Item]) -> None:
    """Mark the variants that only `make soak` runs."""
    tests: defaultdict[tuple[str, ...], dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        parts = item.nodeid.rstrip("]").replace("[", "-", 1).split("-")
        kinds = [part for part in parts[1:] if part in EMBEDDED | REAL]
        chosen = item.nodeid.startswith(CONTRACTS) or item.get_closest_marker("soak")
        if len(kinds) == 1 and not chosen:
            tests[tuple("" if part in kinds else part for part in parts)][kinds[0]] = item
    for variants in tests.values():
        if len(variants) == 2:
            (first, one), (second, other) = sorted(variants.items(), key=lambda kind: kind[0] in REAL)
            mark = one.get_closest_marker("variant")
            wanted = mark.args[0] if mark else first
            assert wanted in (first, second), f"{one.nodeid}: no variant {wanted}"
            (other if wanted == first else one).add_marker("soak")
