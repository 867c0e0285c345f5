"""Schedule: due times of a job kind, from cron text. Pure; all times are UTC."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import xxhash
from cronsim import CronSim, CronSimError

from tsdb.model.errors import InvalidRequest

OFF = "off"
TEXT_MAX = 100  # Most characters. A longer text is refused before it is parsed.
# The delay is below a minute, the unit of cron text. So a job begins within the minute that its schedule names.
JITTER_MS = 60_000

_EPOCH = datetime.fromtimestamp(0, UTC)


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
