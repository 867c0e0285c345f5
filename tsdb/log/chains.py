"""Chains of the roles: write headers with the start time of a message's work, and count bad headers.

Layout: docs/formats/chain-headers.md. The replay path reads no headers: there broker time gives the same.
"""

from __future__ import annotations

from collections.abc import Callable

from tsdb.chain import REASONS, Chain, Mode
from tsdb.ops.metrics import counter

SYSTEM_ID = "tsdb"

anomalies_total = counter(
    "tsdb_chain_anomalies_total",
    "Chain headers ignored (malformed, out_of_range), times after now (clock_behind), time that no service measured"
    " (unbalanced), messages with no hop left (loop_protection).",
    label="reason",
    values=REASONS,
)
_count = {reason: anomalies_total.labels(reason).inc for reason in REASONS}


def chain_of(service_id: str, now_ms: Callable[[], int]) -> Chain:
    """The chain of one role of this system. now_ms: wall clock of the role."""
    return Chain(SYSTEM_ID, service_id, Mode.TREE, count=lambda reason: _count[reason](), now_ms=now_ms)
