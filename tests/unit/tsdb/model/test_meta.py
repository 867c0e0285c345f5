"""Shared settings: every difference is named with both values."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tsdb.codec.records import log_record, series_record
from tsdb.model.meta import MetaSettings, differences
from tsdb.model.placement import PACK_RULE_VERSION
from tsdb.model.time_set import DEMO, TimeSet

MINE = MetaSettings(partitions=18)


def test_equal_settings_do_not_differ() -> None:
    assert differences(MINE, MetaSettings(partitions=18)) == []


@pytest.mark.parametrize(
    ("stored", "line"),
    [
        (replace(MINE, partitions=3), "partitions: this process has 18, meta has 3"),
        (replace(MINE, placement_labels=("host",)), "placement_labels: this process has ('job', 'instance'), meta has"),
        (replace(MINE, chunk_version=2), "chunk_version: this process has 1, meta has 2"),
        (
            replace(MINE, time_set=replace(MINE.time_set, grace_ms=7)),
            "time_set.grace_ms: this process has 300000, meta",
        ),
    ],
)
def test_a_difference_names_the_setting_and_both_values(stored: MetaSettings, line: str) -> None:
    (said,) = differences(MINE, stored)
    assert said.startswith(line)


def test_every_setting_is_compared() -> None:
    for field in fields(MetaSettings):
        if field.name != "time_set":
            other = replace(MINE, **{field.name: "other"})  # type: ignore[arg-type]  # any value that differs
            assert [line.split(":")[0] for line in differences(MINE, other)] == [field.name]
    names = [line.split(":")[0] for line in differences(MINE, replace(MINE, time_set=DEMO))]
    same = {field.name for field in fields(TimeSet)} - {name.removeprefix("time_set.") for name in names}
    assert same == {"accept_past_ms"}


def test_the_versions_are_those_of_the_code() -> None:
    assert MINE.log_record_version == log_record.VERSION
    assert MINE.series_record_version == series_record.VERSION
    assert MINE.pack_rule == PACK_RULE_VERSION
