"""Prometheus 3.15, built from its Go module, answers random queries as this store does, annotations included."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.promql.differential.comparison import Choice, compare_evaluator, compare_standalone
from support.promql.differential.prometheus import UPSTREAM
from support.promql.differential.run import Report
from support.senders.go_senders import built

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

CHOICE = Choice(seed=1, queries=20_000, differences_max=10)


@pytest.mark.parametrize("delays_names", [False, True], ids=["at once", "delayed"])
def test_the_evaluator_answers_as_prometheus_315(tmp_path: Path, delays_names: bool) -> None:
    check(compare_evaluator(built(UPSTREAM), tmp_path, CHOICE, delays_names=delays_names))


def test_a_standalone_process_answers_as_prometheus_315(tmp_path: Path) -> None:
    check(compare_standalone(built(UPSTREAM), tmp_path, CHOICE))


def check(report: Report) -> None:
    print(f"{CHOICE}: {report}")
    assert not report.found, str(report)
    assert report.excused.total() <= CHOICE.queries // 50, str(report)
