"""Validation: checks one request against the clock and the limits of labels, which gives the good rows and the refusals
of the others.

It checks the number of rows, samples and bytes of a request against the limits, and its arrays against each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.limits import IngestLimits, check_limit
from ingest.refusals import Refusals, shown_series
from ingest.rows import ResolvedSeries, Rows
from tsdb.codec.columns.details import SHAPE_BUCKETS_MAX, is_storable
from tsdb.model.errors import InvalidRequest
from tsdb.model.time_set import TimeSet
from tsdb.model.times import DAY_MS, time_text


def check_shape(rows: Rows, limits: IngestLimits) -> None:
    """Raises InvalidRequest: empty_request, malformed_request, too_many_series, too_many_samples, request_too_large."""
    series, samples, size = len(rows), rows.samples, rows.nbytes
    if not series:
        raise InvalidRequest("the request has no series", reason="empty_request")
    if series > limits.series_max or samples > limits.samples_max or size > limits.request_bytes_max:
        check_limit("series", series, limits.series_max, "request_series_max", "too_many_series")
        check_limit("samples", samples, limits.samples_max, "samples_max", "too_many_samples")
        check_limit("bytes", size, limits.request_bytes_max, "request_bytes_max", "request_too_large")
    if not rows.starts[-1] == samples == len(rows.values):
        raise InvalidRequest(
            f"{series} series claim {rows.starts[-1]} samples, but there are {samples} timestamps and "
            f"{len(rows.values)} values",
            reason="malformed_request",
        )


@dataclass(frozen=True, slots=True)
class Validation:
    """good: bool (rows,). refusals: None when every row is good. by_time: whether any row is refused for its time."""

    good: NDArray[np.bool_]
    refusals: Refusals | None
    by_time: bool = False


def validate(
    rows: Rows, series: ResolvedSeries, time_set: TimeSet, now_ms: int, canonical: Callable[[int], bytes]
) -> Validation:
    """A row is refused whole, for its labels or for its first timestamp outside the accepted range.

    The range is that of `accepted_times`. A row without samples is neither good nor refused. canonical(row): its
    canonical labels. Pure.

    """
    good = rows.starts[1:] > rows.starts[:-1]
    oldest_ms, newest_ms = accepted_times(time_set, now_ms)
    in_time = not rows.samples or (
        np.minimum.reduce(rows.ts_ms) >= oldest_ms and np.maximum.reduce(rows.ts_ms) <= newest_ms
    )
    errors = series.errors if rows.details is None else {**series.errors, **_unfit_histograms(rows)}
    if in_time and not errors:
        return Validation(good, None)
    refusals = Refusals()
    bad_ts = {} if in_time else _first_bad_timestamps(rows, oldest_ms, newest_ms)
    for row in sorted(errors.keys() | bad_ts.keys()):
        good[row] = False
        if row in errors:
            error = errors[row]
            refusals.add(row, rows.samples_of(row), error.reason, error.message)
            continue
        reason, text = _time_refusal(bad_ts[row], now_ms, time_set)
        if refusals.wants_text():
            text = f"{text}; series {shown_series(canonical(row))}"
        refusals.add(row, rows.samples_of(row), reason, text)
    return Validation(good, refusals, bool(bad_ts.keys() - errors.keys()))


def _unfit_histograms(rows: Rows) -> dict[int, InvalidRequest]:
    """The refusal of each row with a histogram that is too wide to be stored, or that no protocol can send on."""
    details = rows.details
    if details is None or details.histograms is None or details.histogram_of is None:
        return {}
    shapes = details.histograms.shapes
    unfit = np.array([not (is_storable(shape) and shape.has_short_offsets) for shape in shapes], np.bool_)
    if not unfit.any():
        return {}
    samples = np.flatnonzero(details.histogram_of >= 0)
    shape_of = details.histograms.shape_of[details.histogram_of[samples]]
    samples, shape_of = samples[unfit[shape_of]], shape_of[unfit[shape_of]]
    found = {}
    for row, shape in zip(np.searchsorted(rows.starts, samples, side="right") - 1, shape_of.tolist(), strict=True):
        one = shapes[shape]
        if is_storable(one):
            found[int(row)] = InvalidRequest(
                "a native histogram has a span whose offset is beyond 32 bits, which no protocol can send on",
                reason="histogram_span_out_of_range",
            )
            continue
        size = max(one.buckets, len(one.positive), len(one.negative), len(one.bounds))
        found[int(row)] = InvalidRequest(
            f"a native histogram has {size} buckets, spans or bounds; the limit is {SHAPE_BUCKETS_MAX}: send it with a"
            " lower resolution",
            reason="histogram_too_many_buckets",
        )
    return found


def accepted_times(time_set: TimeSet, now_ms: int) -> tuple[int, int]:
    """(oldest, newest) accepted timestamp, both included."""
    return now_ms - time_set.accept_past_ms, now_ms + time_set.gateway_ahead_ms


def _first_bad_timestamps(rows: Rows, oldest_ms: int, newest_ms: int) -> dict[int, int]:
    """The first timestamp of each row outside [oldest_ms, newest_ms]."""
    bad = np.flatnonzero((rows.ts_ms < oldest_ms) | (rows.ts_ms > newest_ms))
    which, first = np.unique(np.searchsorted(rows.starts, bad, side="right") - 1, return_index=True)
    return dict(zip(which.tolist(), rows.ts_ms[bad[first]].tolist(), strict=True))


def _time_refusal(ts_ms: int, now_ms: int, time_set: TimeSet) -> tuple[str, str]:
    if ts_ms > now_ms:
        limit_ms = time_set.gateway_ahead_ms
        return "too_far_ahead", f"timestamp {ts_ms} is {ts_ms - now_ms} ms ahead of now; limit is {limit_ms} ms"
    old, limit = (now_ms - ts_ms) / DAY_MS, time_set.accept_past_ms / DAY_MS
    return "too_old", f"timestamp {ts_ms} ({time_text(ts_ms)}) is {old:.1f} days old; the limit is {limit:g} days"
