"""A job id stands for one frame: once it is written, other rows under it are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_backfill.writing.fragments import SortedRows
from spark_backfill.writing.frame_record import NO_ROWS, find_frame, finish_frame, rows_digest
from support.servers.logs import LogFactory
from tsdb.log.interface import META, METRICS, Log
from tsdb.model.errors import ConfigMismatch, UnknownVersion


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(partitions=1)
        yield factory.open()


def rows(series: Any, times: Any, values: Any) -> SortedRows:
    count = len(times)
    small, large = np.zeros(count, np.int32), np.zeros(count, np.int64)
    ids = np.array(series, np.uint64)
    return SortedRows(small, ids, large, small, ids, np.array(times, np.int64), np.array(values, np.float64))


def test_a_digest_is_of_the_rows_and_not_of_the_order_of_equal_times() -> None:
    one = rows([1, 1, 2], [5, 5, -7], [0.0, 1.0, np.nan])
    assert rows_digest(one) == rows_digest(rows([1, 1, 2], [5, 5, -7], [1.0, 0.0, np.nan]))
    assert rows_digest(one).startswith("3-")
    assert rows_digest(rows([], [], [])) == NO_ROWS
    others = [
        rows([1, 1, 2], [5, 5, -7], [-0.0, 1.0, np.nan]),
        rows([1, 1, 3], [5, 5, -7], [0.0, 1.0, np.nan]),
        rows([1, 1, 2], [5, 6, -7], [0.0, 1.0, np.nan]),
        rows([1, 1, 2], [5, 5, -7], [1.0, 1.0, np.nan]),
        rows([1, 2], [5, -7], [0.0, np.nan]),
        rows([2, 1, 1], [5, 5, -7], [0.0, 1.0, np.nan]),
    ]
    assert len({rows_digest(one), *map(rows_digest, others)}) == 1 + len(others)


def test_the_first_write_that_ended_stands(log: Log) -> None:
    assert find_frame(log, "job") is None
    finish_frame(log, "job", {0: "2-aa", 1: NO_ROWS, 3: "1-bb"})
    finish_frame(log, "job", {0: "2-aa", 3: "1-bb", 7: NO_ROWS})
    assert find_frame(log, "jo") is None
    found = find_frame(log, "job")
    assert found is not None
    assert found.digests == {0: "2-aa", 3: "1-bb"}
    for task, digest in ((0, "2-aa"), (3, "1-bb"), (1, NO_ROWS)):
        found.check(task, digest)
    for task, digest in ((0, "2-ab"), (0, NO_ROWS), (1, "1-cc")):
        with pytest.raises(ConfigMismatch, match=f"job id job already, and task {task} has other rows") as refused:
            found.check(task, digest)
        assert refused.value.reason == "other_frame"


def test_a_write_that_lacks_a_task_or_ended_second_is_refused(log: Log) -> None:
    finish_frame(log, "job", {0: "2-aa", 1: "1-bb"})
    for digests in ({0: "2-aa"}, {0: "2-aa", 1: "1-cc"}):
        with pytest.raises(ConfigMismatch, match="its tasks had other rows") as refused:
            finish_frame(log, "job", digests)
        assert refused.value.reason == "other_frame"


def test_a_record_of_another_log_does_not_count_and_one_that_does_not_parse_is_named(log: Log) -> None:
    def put(job_id: str, value: bytes) -> None:
        log.append_sync(META, 0, value, key=f"frame/{job_id}/1".encode())

    fields = {"version": 1, "topic_id": "gone", "tasks": {"0": "1-aa"}}
    put("elsewhere", json.dumps(fields).encode())
    assert find_frame(log, "elsewhere") is None
    put("newer", json.dumps({**fields, "version": 2}).encode())
    with pytest.raises(UnknownVersion, match="version 2"):
        find_frame(log, "newer")
    for number, bad in enumerate((b"\xff", b"[]", b"{}", json.dumps({**fields, "tasks": {"x": 1}}).encode())):
        put(f"bad{number}", bad)
        with pytest.raises(ConfigMismatch, match="does not parse"):
            find_frame(log, f"bad{number}")
    assert find_frame(log, log.topic_id(METRICS)) is None
