"""Schedules of an application: the given ones, and defaults for the kinds that this log and history allow."""

from __future__ import annotations

from collections.abc import Mapping

from spark_backfill.application.runs import DOWNSAMPLE, KINDS, MERGE_LATE, VERIFY
from spark_backfill.application.schedule import OFF, Schedule, parse_schedule
from tsdb.model.errors import ConfigMismatch, TsdbError
from tsdb.model.meta import MetaSettings
from tsdb.model.resolution import RESOLUTIONS_MS

# At different minutes, so that the hourly jobs begin after one another.
DEFAULTS = {MERGE_LATE: "10 * * * *", DOWNSAMPLE: "40 * * * *", VERIFY: "20 3 * * *"}


def schedules_of(
    given: Mapping[str, str | None], meta: MetaSettings, topic_id: str, *, history: bool
) -> dict[str, Schedule | None]:
    """The schedule of each kind, with the delay of this log. given: cron text, `off`, or None for the default.

    A kind that needs what is not there is left out, unless a schedule was given for it. Raises InvalidRequest
    (bad_schedule), ConfigMismatch (no_history, time_set).

    """
    found: dict[str, Schedule | None] = {}
    for kind in KINDS:
        text = given.get(kind)
        schedule = parse_schedule(text or DEFAULTS[kind])
        obstacle = _obstacle(kind, meta, history)
        if obstacle is None:
            found[kind] = schedule and schedule.jittered(topic_id, kind)
        elif text is not None and schedule is not None:
            raise obstacle
    return found


def _obstacle(kind: str, meta: MetaSettings, history: bool) -> TsdbError | None:
    """The error that every run of a kind would end with."""
    if kind != VERIFY and not history:
        return ConfigMismatch(f"{kind} needs a history: give --history, or --{kind} {OFF}", reason="no_history")
    window_ms = meta.time_set.window_ms
    if kind == DOWNSAMPLE and any(window_ms % length_ms for length_ms in RESOLUTIONS_MS.values()):
        return ConfigMismatch(
            f"{kind} needs windows that are multiples of an hour; those of the time set {meta.time_set.name} have"
            f" {window_ms} ms: give --{kind} {OFF}",
            reason="time_set",
        )
    return None
