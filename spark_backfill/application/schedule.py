"""Schedule: due times of a job kind, from cron text. Pure; all times are UTC.

An application has the schedules that were given, and defaults for the kinds that this log and history allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import xxhash
from cronsim import CronSim, CronSimError

from spark_backfill.application.runs import DOWNSAMPLE, KINDS, MERGE_LATE, VERIFY
from tsdb.model.errors import ConfigMismatch, InvalidRequest, TsdbError
from tsdb.model.meta import MetaSettings
from tsdb.model.resolution import RESOLUTIONS_MS

OFF = "off"
TEXT_MAX = 100  # Most characters. A longer text is refused before it is parsed.
# The delay is below a minute, the unit of cron text. So a job begins within the minute that its schedule names.
JITTER_MS = 60_000

_EPOCH = datetime.fromtimestamp(0, UTC)

# At different minutes, so that the hourly jobs begin after one another.
DEFAULTS = {MERGE_LATE: "10 * * * *", DOWNSAMPLE: "40 * * * *", VERIFY: "20 3 * * *"}


@dataclass(frozen=True, slots=True)
class Schedule:
    """text: five fields of cron, or six with seconds first. jitter_ms: constant delay of all due times."""

    text: str
    jitter_ms: int = 0

    def jittered(self, topic_id: str, kind: str) -> Schedule:
        """The schedule with the delay of a job kind in one log, below JITTER_MS: two installations that share a cluster
        do not begin at the same second."""
        return replace(self, jitter_ms=xxhash.xxh3_64_intdigest(f"{topic_id}/{kind}".encode()) % JITTER_MS)

    def next_after(self, after_ms: int) -> int:
        """The first due time after a time, both ms since the epoch."""
        # Cron times are whole seconds, so the rest of the second has no effect.
        after = _EPOCH + timedelta(seconds=(after_ms - self.jitter_ms) // 1000)
        return round((next(CronSim(self.text, after)) - _EPOCH).total_seconds()) * 1000 + self.jitter_ms


def parse_schedule(text: str) -> Schedule | None:
    """A schedule from text; None for `off`. Raises InvalidRequest (bad_schedule)."""
    if text.strip().lower() == OFF:
        return None
    if len(text) > TEXT_MAX:
        raise _refused(text[:TEXT_MAX] + "...", f"{len(text)} characters, at most {TEXT_MAX} are allowed")
    schedule = Schedule(" ".join(text.split()))
    try:
        schedule.next_after(0)
    except StopIteration:
        raise _refused(text, "it is never due") from None
    except CronSimError as error:
        raise _refused(text, str(error)) from None
    return schedule


def _refused(text: str, cause: str) -> InvalidRequest:
    return InvalidRequest(
        f"{text!r} is not a schedule: {cause}; give five fields of cron in UTC, such as '0 * * * *' (every hour) or"
        f" '30 3 * * *' (every day at 03:30), or {OFF}",
        reason="bad_schedule",
    )


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
