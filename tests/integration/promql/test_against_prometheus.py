"""A standalone process and Debian's Prometheus get the same samples by remote write, and 2,000 random queries.

The answers must be equal. Debian's version, 2.42, has no annotations: tests/soak compares those with Prometheus 3.15.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.promql.differential.comparison import Choice, compare_standalone
from support.senders.prometheus import binary

CHOICE = Choice(seed=1, queries=2000, differences_max=10)

pytestmark = pytest.mark.timeout(600)  # The start of a process loads or compiles all kernels.


def test_answers_equal_those_of_debians_prometheus(tmp_path: Path) -> None:
    report = compare_standalone(binary("prometheus"), tmp_path, CHOICE)
    print(f"{CHOICE}: {report}")
    assert not report.found, str(report)
    assert report.excused.total() <= CHOICE.queries // 20, str(report)
    assert report.shapes["empty"] <= CHOICE.queries // 2, str(report)
