"""Metadata of metric families: `metadata`, and the copy of the topic that it is answered from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tsdb.api.prometheus.answer import Result, plain
from tsdb.api.prometheus.call import ApiCall, Families
from tsdb.api.prometheus.parameters import integer
from tsdb.model.clock import Clock
from tsdb.model.errors import InvalidRequest
from tsdb.model.family import Family
from tsdb.query.log_value import LogValue

REFRESH_S = 30.0  # A new family may show this much later.
AGAIN_S = 10.0  # Pause after a failed read.
UNKNOWN = "unknown"
STALE = "the log does not answer; metadata is {:.0f} s old, and newer families may be missing"


def remembered_families(
    read: Callable[[], Mapping[str, Family]], clock: Clock, refresh_s: float = REFRESH_S
) -> Callable[[], Families]:
    """A function that gives all metric families by name, as of the last refresh_s; an older copy while the log does not
    answer. read: reads all families.

    The function may be called from any thread; one at a time reads. It raises the errors of `read` without a copy, and
    Unavailable (log_slow).
    """
    value = LogValue("metadata", read, clock, every_s=refresh_s, again_s=AGAIN_S)

    def families() -> Families:
        known = value.get()
        return Families(known.value, None if known.is_fresh else clock.monotonic() - known.at)

    return families


def metadata(call: ApiCall) -> Result:
    """Answers `/api/v1/metadata`. Each family has one set of metadata here."""
    limit, per_metric = _limit(call, "limit"), _limit(call, "limit_per_metric")
    metric = call.form.get("metric")
    known = call.sources.families()
    families = known.by_name
    names = [metric] if metric else sorted(families)
    found: dict[str, list[dict[str, str]]] = {}
    for name in names:
        if limit is not None and 0 <= limit <= len(found):
            break
        if name in families:
            found[name] = [] if per_metric == 0 else [_shown(families[name])]
    return plain(found, () if known.age_s is None else (STALE.format(known.age_s),))


def _limit(call: ApiCall, name: str) -> int | None:
    text = call.form.get(name)
    try:
        return integer(text) if text else None
    except ValueError:
        raise InvalidRequest(f"{name} must be a number", reason="bad_parameter") from None


def _shown(family: Family) -> dict[str, str]:
    return {"type": family.kind or UNKNOWN, "help": family.help, "unit": family.unit}
