"""A schedule is cron text in UTC. Any other text is refused, and the error names its cause."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from spark_backfill.application.schedule import DEFAULTS, JITTER_MS, Schedule, parse_schedule, schedules_of
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import DEMO


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "after", "due"),
    [
        ("0 * * * *", "2026-03-29T00:59:59.999", "2026-03-29T01:00"),
        ("0 * * * *", "2026-03-29T01:00", "2026-03-29T02:00"),  # Summer time begins in Europe at this hour.
        ("30 3 * * *", "2026-03-01T03:30:00.001", "2026-03-02T03:30"),
        ("15 4 1 * *", "2026-12-02T00:00", "2027-01-01T04:15"),
        ("0 0 29 2 *", "2026-03-01T00:00", "2028-02-29T00:00"),
        ("*/20 * * * * *", "2026-03-01T00:00:20", "2026-03-01T00:00:40"),
        ("  0   12  * * MON ", "2026-03-03T00:00", "2026-03-09T12:00"),
    ],
)
def test_the_next_due_time_is_after_the_given_one(text: str, after: str, due: str) -> None:
    schedule = parse_schedule(text)
    assert schedule is not None
    assert schedule.next_after(ms(after)) == ms(due)


def test_a_jitter_moves_all_due_times_by_the_same_delay() -> None:
    schedule = Schedule("0 * * * *", 7_123)
    assert schedule.next_after(ms("2026-03-01T00:00:07.122")) == ms("2026-03-01T00:00:07.123")
    assert schedule.next_after(ms("2026-03-01T00:00:07.123")) == ms("2026-03-01T01:00:07.123")


def test_two_logs_and_two_kinds_have_different_delays_below_a_minute() -> None:
    hourly = Schedule("0 * * * *")
    found = {hourly.jittered(topic, kind).jitter_ms for topic in ("a", "b") for kind in ("verify", "downsample")}
    assert len(found) == 4
    assert max(found) < JITTER_MS
    assert hourly.jittered("a", "verify") == hourly.jittered("a", "verify")


@pytest.mark.parametrize("text", ["off", " OFF "])
def test_off_is_no_schedule(text: str) -> None:
    assert parse_schedule(text) is None


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "Wrong number of fields"),
        ("hourly", "Wrong number of fields"),
        ("60 * * * *", "Bad minute"),
        ("0 24 * * *", "Bad hour"),
        ("0 0 31 2 *", "Bad day-of-month"),
        ("0 0 * 2 MON#5,TUE#6", "Bad day-of-week"),
        ("0 0 * * 1#2/3", "Bad day-of-week"),
        ("0 0 */9 2 MON#5", "it is never due"),
        ("*/0 * * * *", "Bad minute"),
        ("-1 * * * *", "Bad minute"),
        ("9" * 5000, "5000 characters"),
        ("0 0 * 4 * *,", "Bad day-of-week"),
        ("٣ * * * *", "Bad minute"),
    ],
)
def test_a_text_that_is_no_schedule_is_refused_with_its_cause(text: str, cause: str) -> None:
    with pytest.raises(InvalidRequest, match="five fields of cron in UTC") as refused:
        parse_schedule(text)
    assert cause in refused.value.message
    assert refused.value.reason == "bad_schedule"
    assert len(refused.value.message) < 400


NOTHING_GIVEN: dict[str, str | None] = dict.fromkeys(DEFAULTS)


def test_kinds_without_the_means_to_run_have_no_default() -> None:
    whole = schedules_of(NOTHING_GIVEN, MetaSettings(partitions=2), "id", history=True)
    assert {kind: schedule and schedule.text for kind, schedule in whole.items()} == DEFAULTS
    assert list(schedules_of(NOTHING_GIVEN, MetaSettings(partitions=2), "id", history=False)) == ["verify"]
    short = MetaSettings(partitions=2, time_set=DEMO)
    assert list(schedules_of(NOTHING_GIVEN, short, "id", history=True)) == ["merge-late", "verify"]
    off = {**NOTHING_GIVEN, "downsample": "off"}
    assert list(schedules_of(off, short, "id", history=True)) == ["merge-late", "verify"]
    assert schedules_of({**NOTHING_GIVEN, "verify": "off"}, short, "id", history=True)["verify"] is None


@pytest.mark.parametrize(
    ("kind", "meta", "history", "reason"),
    [
        ("merge-late", MetaSettings(partitions=2), False, "no_history"),
        ("downsample", MetaSettings(partitions=2), False, "no_history"),
        ("downsample", MetaSettings(partitions=2, time_set=DEMO), True, "time_set"),
    ],
)
def test_a_schedule_for_a_kind_that_cannot_run_is_refused(
    kind: str, meta: MetaSettings, history: bool, reason: str
) -> None:
    with pytest.raises(ConfigMismatch, match=f"--{kind} off") as refused:
        schedules_of({**NOTHING_GIVEN, kind: "0 * * * *"}, meta, "id", history=history)
    assert refused.value.reason == reason
