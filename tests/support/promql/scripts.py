"""Prometheus's own test scripts, where they are found beside the checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from support.promql.evaluation import Evaluation
from support.promql.script import commands

FOLDER = Path(__file__).parents[4] / "shared" / "data" / "promqltest"


def files() -> list[Path]:
    """The scripts; none where the folder is absent."""
    return sorted(FOLDER.glob("*.test"))


def queries() -> Iterator[str]:
    """Queries that are expected to succeed."""
    for path in files():
        for command in commands(path.read_text()):
            if isinstance(command, Evaluation) and not command.expected.of("fail"):
                yield command.query
