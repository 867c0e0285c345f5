"""Live limits: keeps the limits of series, requests and samples, from settings and from a watched file.

The file is read again when it changes, so a limit changes without a restart. An unreadable or invalid file leaves the
limits unchanged.

Limits file: all limits of sources and bearer tokens, as TOML (docs/runbooks, "A source is at a limit").

A key that the file leaves out is as in the settings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingest.limits import IngestLimits, Rate, RateLimits, SeriesLimits
from ingest.quota.token_quota import holder_of
from ingest.series.canonical import source_hash
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch
from tsdb.model.labels import canonical_labels
from tsdb.model.placement import PlacementRule
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.watched_file import WatchedFile

LOOK_EVERY_S = 1.0
_reload_failures = counter(
    "tsdb_ingest_limits_reload_failures_total", "Changes of limits_file that could not be applied."
)
logger = get_logger(__name__)

FILE_BYTES_MAX = 4 << 20
FILE_ENTRIES_MAX = 10_000  # Most entries of each kind.
SERIES_MAX = 100_000_000
RATE_MAX = 1e12
BURST_S_MAX = 3600.0
NAME_CHARS_MAX = 64
_SERIES = ("source_series_max", "gateway_series_max")
_RATES = ("requests_per_s", "samples_per_s")
_TOP = (*_SERIES, *(f"{holder}_{rate}" for holder in ("source", "token") for rate in _RATES), "rate_burst_s")
Table = Mapping[str, Any]


class LiveLimits:
    """The current limits. Thread-safe. Raises ConfigMismatch (limits_file) when the file is invalid."""

    def __init__(self, limits: IngestLimits, rule: PlacementRule, clock: Clock) -> None:
        self._settings = CurrentLimits(limits.series, limits.source_rates, limits.token_rates)
        self._rule = rule
        self._file: WatchedFile[CurrentLimits] | None = None
        if limits.limits_file is not None:
            self._file = WatchedFile(
                limits.limits_file, self._read, clock, look_every_s=LOOK_EVERY_S, on_failure=_reload_failures.inc
            )

    def series(self) -> SeriesLimits:
        """Limits of active series. Each of these functions checks for a changed file at most once a second."""
        return self._now().series

    def source_rates(self) -> RateLimits:
        """Requests and samples a second of sources."""
        return self._now().source_rates

    def token_rates(self) -> RateLimits:
        """Requests and samples a second of bearer tokens."""
        return self._now().token_rates

    def _now(self) -> CurrentLimits:
        return self._settings if self._file is None else self._file.now()

    def _read(self, file: Path) -> CurrentLimits:
        limits = read_limits(file, self._settings, self._rule)
        logger.info(
            "limits read",
            file=str(file),
            source_series_max=limits.series.source_series_max,
            gateway_series_max=limits.series.gateway_series_max,
            sources=len(limits.series.of_source.keys() | limits.source_rates.own.keys()),
            tokens=len(limits.token_rates.own),
        )
        return limits


@dataclass(frozen=True, slots=True)
class CurrentLimits:
    """All limits that a file can change."""

    series: SeriesLimits
    source_rates: RateLimits
    token_rates: RateLimits


def read_limits(file: Path, settings: CurrentLimits, rule: PlacementRule) -> CurrentLimits:
    """Raises ConfigMismatch (limits_file) with the key, the value and the legal range."""
    try:
        size = file.stat().st_size
        if size > FILE_BYTES_MAX:
            raise _Wrong(f"it has {size} bytes; limit is {FILE_BYTES_MAX}")
        content = tomllib.loads(file.read_text())
        return _limits(content, settings, rule)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _of_file(file, str(error)) from error
    except _Wrong as error:
        raise _of_file(file, str(error)) from None


class _Wrong(Exception):
    """A value of the file that cannot be used."""


def _limits(content: dict[str, Any], settings: CurrentLimits, rule: PlacementRule) -> CurrentLimits:
    sources, tokens = _entries(content, "source"), _entries(content, "token")
    if unknown := content.keys() - set(_TOP):
        raise _Wrong(f"unknown key {min(unknown)!r}; known are {', '.join(_TOP)}, [[source]] and [[token]]")
    series_of: dict[int, int] = {}
    rate_of: dict[int, Rate] = {}
    for at, entry in enumerate(sources, 1):
        place = f"[[source]] {at}"
        holder = _source(place, entry, rule)
        if "series_max" in entry:
            series_of[holder] = _series(f"{place}: series_max", entry["series_max"])
        if (rate := _rate(f"{place}: ", entry)).limited:
            rate_of[holder] = rate
    token_rate_of = dict(_token(f"[[token]] {at}", entry) for at, entry in enumerate(tokens, 1))
    maxima = {key: _series(key, content[key]) for key in _SERIES if key in content}
    burst_s = _burst_s(content.get("rate_burst_s", settings.source_rates.burst_s))
    return CurrentLimits(
        replace(settings.series, of_source=series_of, **maxima),
        RateLimits(_default("source", content, settings.source_rates), rate_of, burst_s),
        RateLimits(_default("token", content, settings.token_rates), token_rate_of, burst_s),
    )


def _default(holder: str, content: Table, settings: RateLimits) -> Rate:
    found = _rate(f"{holder}_", {key: content[f"{holder}_{key}"] for key in _RATES if f"{holder}_{key}" in content})
    requests = settings.default.requests_per_s if found.requests_per_s is None else found.requests_per_s
    return Rate(requests, settings.default.samples_per_s if found.samples_per_s is None else found.samples_per_s)


def _entries(content: dict[str, Any], key: str) -> list[Table]:
    entries = content.pop(key, [])
    if not isinstance(entries, list) or len(entries) > FILE_ENTRIES_MAX:
        raise _Wrong(f"{key} must be tables [[{key}]], at most {FILE_ENTRIES_MAX}")
    if not all(isinstance(entry, dict) for entry in entries):
        raise _Wrong(f"{key} must be tables [[{key}]]")
    return entries


def _source(place: str, entry: Table, rule: PlacementRule) -> int:
    """Hash of the source of an entry."""
    limits = {"series_max", *_RATES}
    if "labels" not in entry or not entry.keys() & limits or entry.keys() - limits - {"labels"}:
        raise _Wrong(
            f'{place} must be labels = {{ job = "..." }} and one or more of series_max, {", ".join(_RATES)} = NUMBER'
        )
    labels, allowed = entry["labels"], (*rule.labels, "__name__")
    if not isinstance(labels, dict) or not labels or not all(isinstance(value, str) for value in labels.values()):
        raise _Wrong(f"{place}: labels must be a table of texts")
    if unknown := labels.keys() - set(allowed):
        raise _Wrong(f"{place}: label {min(unknown)!r} is no placement label ({', '.join(allowed)})")
    return source_hash(rule.place(canonical_labels(labels)).placement)


def _token(place: str, entry: Table) -> tuple[int, Rate]:
    """Holder and limits of an entry."""
    if "sha256" not in entry or not entry.keys() & set(_RATES) or entry.keys() - {"name", "sha256", *_RATES}:
        raise _Wrong(f'{place} must be sha256 = "HEX", one or more of {", ".join(_RATES)} = NUMBER, and perhaps a name')
    name = entry.get("name", "")
    if not isinstance(name, str) or len(name) > NAME_CHARS_MAX:
        raise _Wrong(f"{place}: name must be a text of at most {NAME_CHARS_MAX} characters")
    try:
        digest = bytes.fromhex(entry["sha256"])
    except (TypeError, ValueError):
        digest = b""
    if len(digest) != 32:
        raise _Wrong(f"{place}: sha256 must be 64 hexadecimal digits, as `printf %s TOKEN | sha256sum` prints")
    return holder_of(digest), replace(_rate(f"{place}: ", entry), name=name)


def _rate(place: str, entry: Table) -> Rate:
    requests, samples = (_number(place + key, entry[key], RATE_MAX) if key in entry else None for key in _RATES)
    return Rate(requests, samples)


def _series(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= SERIES_MAX:
        raise _Wrong(f"{name} is {value!r}; it must be a whole number from 0 to {SERIES_MAX}")
    return value


def _number(name: str, value: object, most: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
        raise _Wrong(f"{name} is {value!r}; it must be a number from 0 to {most:g}")
    return float(value)


def _burst_s(value: object) -> float:
    if value == 0:
        raise _Wrong(f"rate_burst_s is {value}; it must be above 0")
    return _number("rate_burst_s", value, BURST_S_MAX)


def _of_file(file: Path, why: str) -> ConfigMismatch:
    return ConfigMismatch(f"limits_file {file}: {why}", reason="limits_file")
