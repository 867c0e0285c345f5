"""By default PromQL queries leave one core of several to writes and reads."""

from __future__ import annotations

import pytest

from tsdb.config.standalone import StandaloneSettings
from tsdb.roles import promql


@pytest.mark.parametrize(("cores", "queries"), [(1, 1), (2, 1), (8, 7)])
def test_queries_leave_a_core(cores: int, queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promql, "core_count", lambda: cores)
    settings = StandaloneSettings.model_validate({})
    assert promql.api_options(settings).running_max == queries


def test_a_number_that_is_set_stays() -> None:
    settings = StandaloneSettings.model_validate({"query_running_max": 5})
    assert promql.api_options(settings).running_max == 5
