"""Arguments of the functions are read alike from every type, and each mistake is named before any work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import spark_backfill
from spark_backfill.arguments import count, duration_ms, pack_ids, time_ms
from tsdb.model.errors import InvalidRequest, TsdbError

NOON_MS = 1_577_880_000_000  # 2020-01-01T12:00Z


@pytest.mark.parametrize(
    "time",
    [
        NOON_MS,
        str(NOON_MS),
        "2020-01-01T12:00",
        "2020-01-01T13:00+01:00",
        datetime(2020, 1, 1, 12),
        datetime(2020, 1, 1, 12, 0, 0, 999, tzinfo=UTC),
        datetime(2020, 1, 1, 7, tzinfo=timezone(timedelta(hours=-5))),
    ],
)
def test_a_time_without_a_zone_is_utc_in_every_type(time: datetime | str | int) -> None:
    assert time_ms("start", time) == NOON_MS
    assert time_ms("start", date(2020, 1, 1)) == NOON_MS - 12 * 3600 * 1000


@pytest.mark.parametrize(
    ("call", "reason", "text"),
    [
        (lambda: time_ms("end", "noon"), "bad_time", "end: 'noon' is neither ms since the epoch nor a time such as"),
        (lambda: time_ms("end", 1_577_880_000), "bad_time", "looks like seconds.*write 1577880000000"),
        (lambda: time_ms("end", 1.5), "bad_time", "end is float; want a datetime"),  # type: ignore[arg-type]
        (lambda: time_ms("end", True), "bad_time", "end is bool; want"),
        (lambda: duration_ms("wait", 60), "bad_duration", r"wait is 60; want a datetime\.timedelta"),  # type: ignore[arg-type]
        (lambda: duration_ms("wait", timedelta(seconds=-1)), "bad_duration", "want 0 or more"),
        (lambda: count("splits", 0), "bad_count", "splits is 0; want an int of 1 or more"),
        (lambda: pack_ids("00ff"), "bad_pack", r"packs is text; want a list, such as \['00ff'\]"),
        (lambda: pack_ids(["0xff"]), "bad_pack", "a pack is 16 hexadecimal digits; got '0xff'"),
    ],
)
def test_a_bad_argument_is_named_with_the_form_that_is_wanted(call: Callable[[], Any], reason: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text) as refused:
        call()
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("given", "reason", "text"),
    [
        ({}, "bad_setting", r"log is required: give log=\.\.\. or TSDB_LOG"),
        (
            {"log": "kafka://h:1", "histroy": "x"},
            "unknown_setting",
            "keyword histroy is not a setting; did you mean hist",
        ),
        ({"log": "kafka://h:1", "grpc": "h:1"}, "unknown_setting", "keyword grpc is not a setting"),
        (
            {"log": "kafka://h:1", "kafka_sasl_password": "x"},
            "unknown_setting",
            "did you mean kafka_sasl_password_file",
        ),
        ({"log": "ftp://h"}, "bad_setting", "log = 'ftp://h'"),
        ({"log": "kafka://h:1", "time_set": "slow"}, "bad_setting", "it must be 'production', 'demo' or 'brief'"),
        ({"config": "nowhere.toml"}, "config_file", r"config file nowhere\.toml cannot be read"),
        ({"log": "sqlite:////nowhere/log.db"}, "log_missing", "nowhere"),
    ],
)
def test_settings_that_lead_to_no_installation_are_refused_by_name(
    given: dict[str, Any], reason: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("TSDB_LOG", "TSDB_HISTORY", "TSDB_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(TsdbError, match=text) as refused:
        spark_backfill.connect(**given)
    assert refused.value.reason == reason


def test_importing_the_package_loads_no_library() -> None:
    libraries = ("pyspark", "pydantic", "numpy", "pyarrow", "structlog", "confluent_kafka")
    program = f"import sys, spark_backfill; print([name for name in {libraries} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
