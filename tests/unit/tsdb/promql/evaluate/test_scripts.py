"""Prometheus's own test scripts, where they are found. They are not copied.

Each instant query is also evaluated inside a range and, fixed by `@`, at other times, as Prometheus does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.promql.runner import State, run_script
from support.promql.scripts import files

__test__ = bool(files())  # A machine without the scripts has no such tests, and none that are skipped.


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.stem))
def test_evaluations_have_the_results_of_prometheus(path: Path) -> None:
    outcomes = list(run_script(path))
    failed = [str(outcome) for outcome in outcomes if outcome.state is State.FAILED]
    assert not failed, "\n\n".join([f"{len(failed)} of {len(outcomes)} evaluations fail", *failed])
