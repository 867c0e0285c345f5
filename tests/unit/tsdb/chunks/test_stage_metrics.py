"""Stage metrics: both engines move one family, and a partition that is given up shows no progress any more."""

from __future__ import annotations

import pytest

from tsdb.chunks.engine import ENGINES, Engine
from tsdb.chunks.progress import Progress
from tsdb.chunks.stage_metrics import StageMetrics, StagePlace
from tsdb.ops.metrics import registry

PARTITION = 4_711  # A partition that no other test uses, because the process has one registry.


def value(name: str, engine: Engine, **labels: str) -> float | None:
    return registry.get_sample_value(f"tsdb_chunk_stage_{name}", {"engine": engine, **labels})


@pytest.mark.parametrize("engine", ENGINES)
def test_a_place_shows_until_it_is_given_up(engine: Engine) -> None:
    metrics, partition = StageMetrics(engine), str(PARTITION)
    metrics.committed(PARTITION, 2_500)
    metrics.show(StagePlace(PARTITION, True, 12, Progress(100, 30_000), 3))
    names = {
        "lag_records": 12,
        "position": 100,
        "emitted_through_timestamp_seconds": 30,
        "windows_overdue": 3,
        "last_commit_timestamp_seconds": 2.5,
    }
    assert {name: value(name, engine, partition=partition) for name in names} == names
    assert value("partition_ready", engine, partition=partition) == 1
    metrics.forget(PARTITION)
    assert {value(name, engine, partition=partition) for name in names} == {None}
    assert value("partition_ready", engine, partition=partition) == 0


def test_what_is_not_known_yet_is_not_shown() -> None:
    metrics, partition = StageMetrics("spark"), str(PARTITION + 1)
    metrics.show(StagePlace(PARTITION + 1, False, None, None, None))
    assert value("lag_records", "spark", partition=partition) is None
    assert value("windows_overdue", "spark", partition=partition) is None
    assert value("partition_ready", "spark", partition=partition) == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_counters_show_zero_before_the_first_event(engine: Engine) -> None:
    StageMetrics(engine)
    for name, labels in (
        ("chunks_total", {"kind": "late"}),
        ("windows_total", {"result": "not_whole"}),
        ("ticks_total", {}),
        ("holes_total", {}),
    ):
        assert value(name, engine, **labels) is not None
