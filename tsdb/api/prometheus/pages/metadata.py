"""Metadata of metric families: `metadata`, and the copy of the topic that it is answered from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.json.envelope import Result, plain
from tsdb.api.prometheus.request.parameters import integer
from tsdb.model.clock import Clock
from tsdb.model.errors import InvalidRequest
from tsdb.model.family import Family

REFRESH_S = 30.0  # A new family may show this much later.
UNKNOWN = "unknown"


class FamiliesCache:
    """Families by name. read: reads all. Thread-safe; one thread at a time reads."""

    def __init__(self, read: Callable[[], Mapping[str, Family]], clock: Clock, refresh_s: float = REFRESH_S) -> None:
        self._read = read
        self._clock = clock
        self._refresh_s = refresh_s
        self._lock = threading.Lock()  # Guards all below; held during a read.
        self._families: Mapping[str, Family] = {}
        self._read_at: float | None = None

    def families(self) -> Mapping[str, Family]:
        """All families, as of the last REFRESH_S. Raises what `read` raises."""
        with self._lock:
            now = self._clock.monotonic()
            if self._read_at is None or now - self._read_at >= self._refresh_s:
                self._families = self._read()
                self._read_at = now
            return self._families


def metadata(call: ApiCall) -> Result:
    """Answers `/api/v1/metadata`. Each family has one set of metadata here."""
    limit, per_metric = _limit(call, "limit"), _limit(call, "limit_per_metric")
    metric = call.form.get("metric")
    families = call.sources.families()
    names = [metric] if metric else sorted(families)
    found: dict[str, list[dict[str, str]]] = {}
    for name in names:
        if limit is not None and 0 <= limit <= len(found):
            break
        if name in families:
            found[name] = [] if per_metric == 0 else [_shown(families[name])]
    return plain(found)


def _limit(call: ApiCall, name: str) -> int | None:
    text = call.form.get(name)
    try:
        return integer(text) if text else None
    except ValueError:
        raise InvalidRequest(f"{name} must be a number", reason="bad_parameter") from None


def _shown(family: Family) -> dict[str, str]:
    return {"type": family.kind or UNKNOWN, "help": family.help, "unit": family.unit}
