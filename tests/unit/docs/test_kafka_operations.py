"""The page on operations of Kafka names every reason with which the commands refuse."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted((ROOT / "tsdb/log/kafka/operations").glob("*.py"))
REASON = re.compile(r'(?:Refusal\(\s*|reason=)"(\w+)"')
# Of every command that reads from Kafka.
CONNECTION = {"log_error", "log_settings", "log_unauthorized", "log_unavailable"}


def test_each_reason_is_a_row_of_the_page() -> None:
    reasons = {reason for file in SOURCES for reason in REASON.findall(file.read_text())} - CONNECTION
    assert len(reasons) > 10
    table = "".join(line.split("|")[1] for line in _page() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", table)) >= reasons


def _page() -> list[str]:
    return (ROOT / "docs/kafka-operations.md").read_text().splitlines()
