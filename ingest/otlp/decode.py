"""Decode: the bytes of an ExportMetricsServiceRequest as rows for the write pipeline.

Python runs once a metric and once a resource; points, attributes and buckets are work of kernels. A metric that the
store does not take makes its points errors; the others are rows. A point of delta temporality is a row like any other:
its value is what was added in its interval. A sum of deltas would be state, which a restart or a second gateway breaks.
Refused by name:

- `delta_temporality` (by setting, and of exponential histograms that would become classic ones);
- `unspecified_temporality`, `native_histogram` (by setting), `histogram_scale` (below -4, as in Prometheus);
- `labels_malformed`, `labels_too_many`: of a point's or a resource's attributes.

Warm-up of the OTLP decoder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ingest.bucket_memory import BucketMemory
from ingest.otlp.exemplars import exemplars_of
from ingest.otlp.mapping.bucket_kernels import SCALE_MIN, buckets_kernel
from ingest.otlp.mapping.families import (
    DELTA_REASON,
    SHOWN_MAX,
    Arena,
    FamilyMapper,
    MappedMetrics,
    boundary_texts,
    odd_texts,
)
from ingest.otlp.mapping.label_kernels import (
    ATTRIBUTE_EXTRA_BYTES,
    CONTEXT_BYTES,
    NAME_IN_ARENA,
    NAME_IN_ARENA_END,
    NAMELESS_LABEL,
    NOT_UTF8,
    OF_METRIC,
    ROW_BYTES_MAX,
    SCALE_TOO_SMALL,
    SCRATCH_COLUMNS,
    TOO_MANY_ATTRIBUTES,
)
from ingest.otlp.mapping.names import OtlpRules
from ingest.otlp.mapping.native import native_histograms
from ingest.otlp.mapping.series_kernels import series_kernel
from ingest.otlp.wire.field_kernels import (
    ATTRIBUTE_BYTES,
    ATTRIBUTES,
    EXPONENTIAL,
    GAUGE,
    METRIC_KIND,
    METRIC_RESOURCE,
    NAME_AT,
    NAME_END,
    NO_RECORDED_VALUE,
    ODD_AT,
    POINT_FLAGS,
    POINT_METRIC,
    POINT_SCALE,
    POINT_START,
    POINT_TIME,
)
from ingest.otlp.wire.tables import TableLimits, Tables, scan
from ingest.protobuf_fields import Buffer
from ingest.rows import RowExemplars, Rows
from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest
from tsdb.model.family import Family
from tsdb.model.stale import STALE_BITS
from tsdb.ops.logs import get_logger

_LE = b"\xffle\xff"
_INFINITE_LE = b"\xffle\xff+Inf"
NS_PER_MS = 1_000_000
WARN_EVERY_S = 60.0
SOURCES_MAX = 1_000  # Sources that have a log line. Above this number all of them may be logged again.
ROW_ARRAYS_BYTES = 64  # Bytes of one row beside its labels: positions, timestamp, value, boundary and its text.
logger = get_logger(__name__)


def _unbounded(_bytes: int) -> None:
    """For a caller that reserves no memory."""


@dataclass(frozen=True, slots=True)
class OtlpLimits:
    """tables: limits of a request's parts. label_bytes_max: bytes of the label sets of one request, since rows repeat
    labels."""

    tables: TableLimits = field(default_factory=TableLimits)
    label_bytes_max: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Export:
    """A decoded request. `rows` has the rows of its points, then those of `target_info`.

    row_points: int64 (rows,), the point of each row, -1 for `target_info`. points: data points of the request.
    metadata: the metadata of the accepted metrics. start_times: points with a start time, which is counted and not
    kept.
    """

    rows: Rows
    row_points: NDArray[np.int64]
    points: int
    metadata: list[Family]
    start_times: int


class OtlpDecoder:
    """Decodes requests by the rules of one gateway. Thread-safe."""

    def __init__(
        self,
        rules: OtlpRules | None = None,
        limits: OtlpLimits | None = None,
        buckets: BucketMemory | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """buckets: None for a memory that knows what this process received alone. monotonic: seconds, for the log."""
        self._delta_warnings = OncePerSource(monotonic)
        self._rules = rules or OtlpRules()
        self._limits = limits or OtlpLimits()
        self._buckets = buckets or BucketMemory()
        self._families = FamilyMapper(self._rules, self._limits.tables.attributes_max)

    def decode(self, data: Buffer, reserve: Callable[[int], None] = _unbounded, *, may_wait: bool = True) -> Export:
        """reserve: called with the bytes of arrays before they are made; it may raise. may_wait: see WriteCall.

        Raises InvalidRequest: malformed_request with the byte, too_many_series, message_too_large, request_too_large.
        """
        tables = scan(data, self._limits.tables, reserve)
        has_exponential = bool((tables.metrics[:, METRIC_KIND] == EXPONENTIAL).any())
        keeps_native = self._rules.native_histograms == "keep"
        if has_exponential and not keeps_native:
            self._buckets.check_wait(may_wait=may_wait)
        arena = Arena()
        mapped = self._families.map(tables, data, arena)
        self._warn_of_delta(tables, mapped)
        spans, values, boundaries = _buckets(tables, keeps_native)
        buckets, odd = boundary_texts(boundaries, arena), odd_texts(tables, data, arena)
        texts = arena.array()
        point_bytes, bytes_max = _label_bytes(tables, mapped, spans, buckets, odd, self._limits)

        most = tables.rows_max
        reserve(bytes_max + most * ROW_ARRAYS_BYTES)
        out, label_starts = np.empty(bytes_max, np.uint8), np.zeros(most + 1, np.int64)
        ts_ms, samples, row_points = np.empty(most, np.int64), np.empty(most), np.empty(most, np.int64)
        refused = np.empty(len(tables.points), np.int64)
        rows = series_kernel(
            tables.data, texts, tables.metrics, mapped.families, mapped.contexts, tables.points, spans, values,
            buckets, odd, self._rules.translation_strategy.escapes, keeps_native,
            np.empty((self._limits.tables.attributes_max, SCRATCH_COLUMNS), np.int64),
            np.empty(point_bytes, np.uint8), np.empty(point_bytes, np.uint8),
            out, label_starts, ts_ms, samples, row_points, refused,
        )  # fmt: skip
        gone = _Gone()
        if has_exponential and not keeps_native:
            gone = self._gone(tables, texts, spans, buckets, out, label_starts, row_points[:rows], refused)
            reserve(gone.nbytes)
        exemplars = None
        if tables.exemplars:
            exemplars = exemplars_of(tables, data, spans, boundaries, row_points[:rows])
        info, info_errors = _target_info(tables, mapped, refused)
        errors = _errors(tables, mapped, row_points[:rows], refused, self._limits.tables.attributes_max)
        errors |= {rows + len(gone.labels) + row: error for row, error in info_errors.items()}
        details = None
        if keeps_native and (has_exponential or tables.start_times):
            more = len(gone.labels) + len(info)
            details, refusals = self._details(tables, row_points[:rows], refused, more)
            errors |= refusals
        return Export(
            _rows(out, label_starts[: rows + 1], ts_ms[:rows], samples[:rows], gone, info, errors, exemplars, details),
            np.concatenate([row_points[:rows], np.array(gone.points, np.int64), np.full(len(info), -1)]),
            len(tables.points),
            mapped.metadata,
            0 if keeps_native else tables.start_times,
        )

    def _warn_of_delta(self, tables: Tables, mapped: MappedMetrics) -> None:
        """Log once a minute and source: a sender shows its operator only a partial success, or nothing."""
        for row, error in mapped.errors.items():
            if error.reason == DELTA_REASON:
                resource = mapped.resources[tables.metrics[row, METRIC_RESOURCE]]
                if self._delta_warnings.due(resource.source):
                    logger.warning(
                        "delta temporality is refused",
                        source=resource.source,
                        example=error.message,
                        next="set the sender to cumulative, as OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE "
                        "does, or change the setting that the example names",
                    )

    def _details(
        self, tables: Tables, row_points: NDArray[np.int64], refused: NDArray[np.int64], more: int
    ) -> tuple[SampleDetails | None, dict[int, InvalidRequest]]:
        """(details of the rows of points and of `more` rows, refusals by row)."""
        samples = len(row_points) + more
        kinds = tables.metrics[tables.points[:, POINT_METRIC], METRIC_KIND]
        of_points = (tables.points[:, POINT_START].view(np.uint64) // np.uint64(NS_PER_MS)).astype(np.int64)
        of_points[kinds == GAUGE] = 0  # A gauge does not begin anew.
        start_ms = np.zeros(samples, np.int64)
        start_ms[: len(row_points)] = of_points[row_points]
        points = np.flatnonzero((kinds == EXPONENTIAL) & (refused == 0))
        columns, errors = native_histograms(tables, points)
        rows = np.searchsorted(row_points, points)
        histogram_of = np.full(samples, -1, np.int64)
        histogram_of[rows] = np.arange(len(points))
        refusals: dict[int, InvalidRequest] = {}
        for index, error in errors.items():
            shown = _shown(tables, int(tables.points[points[index], POINT_METRIC]))
            refusals[int(rows[index])] = InvalidRequest(f"{shown}: {error.message}", reason=error.reason)
        return SampleDetails(start_ms, columns, histogram_of).part(0, samples), refusals

    def _gone(
        self,
        tables: Tables,
        texts: NDArray[np.uint8],
        spans: NDArray[np.int64],
        buckets: NDArray[np.int64],
        out: NDArray[np.uint8],
        label_starts: NDArray[np.int64],
        row_points: NDArray[np.int64],
        refused: NDArray[np.int64],
    ) -> _Gone:
        """Stale markers for the boundaries that accepted exponential histograms have no more."""
        found = _Gone()
        kinds = tables.metrics[tables.points[:, POINT_METRIC], METRIC_KIND]
        points = np.flatnonzero((kinds == EXPONENTIAL) & (refused == 0))
        last_rows = np.searchsorted(row_points, points, side="right") - 1  # The row of +Inf.
        for point, row in zip(points.tolist(), last_rows.tolist(), strict=True):
            labels = out[label_starts[row] : label_starts[row + 1]].tobytes()
            name, _, rest = labels.partition(
                _INFINITE_LE
            )  # It is the first label after the name, so no value can be mistaken for it.
            first, end = spans[point].tolist()
            bounds = frozenset(texts[at:stop].tobytes() for at, stop in buckets[first:end].tolist())
            live = () if tables.points[point, POINT_FLAGS] & NO_RECORDED_VALUE else bounds
            ts_ms = int(np.uint64(tables.points[point, POINT_TIME])) // NS_PER_MS
            for bound in self._buckets.gone(name + rest, frozenset(live), ts_ms):
                if bound not in bounds:
                    found.add(name + _LE + bound + rest, ts_ms, point)
        return found


class OncePerSource:
    """Thread-safe: a race costs one line of the log more."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._written: dict[str, float] = {}

    def due(self, source: str) -> bool:
        """Whether the last log line about this source is a minute old. True starts a new minute."""
        now = self._monotonic()
        if now - self._written.get(source, float("-inf")) < WARN_EVERY_S:
            return False
        if len(self._written) >= SOURCES_MAX:
            self._written.clear()
        self._written[source] = now
        return True


class _Gone:
    """Rows of stale markers: labels, timestamp and point of each."""

    def __init__(self) -> None:
        self.labels: list[bytes] = []
        self.ts_ms: list[int] = []
        self.points: list[int] = []

    def add(self, labels: bytes, ts_ms: int, point: int) -> None:
        self.labels.append(labels)
        self.ts_ms.append(ts_ms)
        self.points.append(point)

    @property
    def nbytes(self) -> int:
        """Bytes of labels and arrays."""
        return sum(map(len, self.labels)) + ROW_ARRAYS_BYTES * len(self.labels)


def _buckets(tables: Tables, keeps_native: bool) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """(span of each point, value and boundary of each bucket or quantile)."""
    spans = np.empty((len(tables.points), 2), np.int64)
    boundaries, values = np.empty(tables.rows_max), np.empty(tables.rows_max)
    size = buckets_kernel(
        tables.metrics, tables.points, tables.counts, tables.bounds, keeps_native, spans, boundaries, values
    )
    return spans, values[:size], boundaries[:size]


def _label_bytes(
    tables: Tables,
    mapped: MappedMetrics,
    spans: NDArray[np.int64],
    buckets: NDArray[np.int64],
    odd: NDArray[np.int64],
    limits: OtlpLimits,
) -> tuple[int, int]:
    """The most bytes of the labels of one point, and of all rows. Raises InvalidRequest (request_too_large)."""
    points = tables.points
    family = mapped.families[points[:, POINT_METRIC]]
    odd_sizes = np.zeros(len(odd) + 1, np.int64)
    np.cumsum(odd[:, 1] - odd[:, 0], out=odd_sizes[1:])
    odd_bytes = np.diff(odd_sizes[np.append(points[:, ODD_AT], len(odd))])
    own = points[:, ATTRIBUTE_BYTES] + ATTRIBUTE_EXTRA_BYTES * points[:, ATTRIBUTES] + odd_bytes
    own[points[:, ATTRIBUTES] > limits.tables.attributes_max] = 0  # Such a point is refused.
    base = own + family[:, CONTEXT_BYTES]
    text = int((buckets[:, 1] - buckets[:, 0]).max(initial=0))
    row = base + family[:, NAME_IN_ARENA_END] - family[:, NAME_IN_ARENA] + text + ROW_BYTES_MAX
    total = int((row * (spans[:, 1] - spans[:, 0] + 3)).sum())
    if total > limits.label_bytes_max:
        raise InvalidRequest(
            f"the label sets of the request's series have up to {total} bytes; limit is {limits.label_bytes_max} "
            "(4 times request_bytes_max): send fewer data points a request",
            reason="request_too_large",
            got=total,
            limit=limits.label_bytes_max,
        )
    return int(base.max(initial=0)), total


def _errors(
    tables: Tables,
    mapped: MappedMetrics,
    row_points: NDArray[np.int64],
    refused: NDArray[np.int64],
    attributes_max: int,
) -> dict[int, InvalidRequest]:
    """The error of each row of a refused point. Points of one metric share one error for each cause."""
    rows = np.flatnonzero(refused[row_points])
    points = row_points[rows]
    metrics, causes = tables.points[points, POINT_METRIC], refused[points]
    known: dict[tuple[int, int], InvalidRequest] = {}
    errors = {}
    for row, point, metric, cause in zip(
        rows.tolist(), points.tolist(), metrics.tolist(), causes.tolist(), strict=True
    ):
        key = metric, cause
        if key not in known:
            known[key] = (
                mapped.errors[metric]
                if cause == OF_METRIC
                else _point_error(tables, point, metric, cause, attributes_max)
            )
        errors[row] = known[key]
    return errors


def _point_error(tables: Tables, point: int, metric: int, cause: int, attributes_max: int) -> InvalidRequest:
    shown = _shown(tables, metric)
    row = tables.points[point]
    if cause == TOO_MANY_ATTRIBUTES:
        text = f"{shown} has {row[ATTRIBUTES]} attributes; limit is {attributes_max} (twice labels_max)"
        return InvalidRequest(text, reason="labels_too_many")
    if cause == SCALE_TOO_SMALL:
        text = f"{shown} has scale {row[POINT_SCALE]}; {SCALE_MIN} is the smallest that is accepted"
        return InvalidRequest(text, reason="histogram_scale")
    if cause == NAMELESS_LABEL:
        return InvalidRequest(f"{shown} has an attribute key without letter or digit", reason="labels_malformed")
    assert cause == NOT_UTF8, cause
    return InvalidRequest(f"{shown} has an attribute that is not valid UTF-8", reason="labels_malformed")


def _shown(tables: Tables, metric: int) -> str:
    at, end = tables.metrics[metric, [NAME_AT, NAME_END]].tolist()
    return f"a data point of metric {tables.data[at:end].tobytes()[:SHOWN_MAX].decode(errors='replace')!r}"


def _target_info(
    tables: Tables, mapped: MappedMetrics, refused: NDArray[np.int64]
) -> tuple[list[tuple[bytes, int]], dict[int, InvalidRequest]]:
    """Labels and timestamp of each series `target_info`, and the errors of some of them.

    A resource has one, with the newest timestamp of its accepted points.

    """
    accepted = tables.points[refused == 0]
    newest = np.zeros(len(tables.resources), np.uint64)
    resources = tables.metrics[accepted[:, POINT_METRIC], METRIC_RESOURCE]
    np.maximum.at(newest, resources, accepted[:, POINT_TIME].view(np.uint64))
    found: dict[tuple[bytes, int], InvalidRequest | None] = {}
    for row in np.unique(resources).tolist():
        info, ts_ms = mapped.resources[row].target_info, int(newest[row]) // 1_000_000
        if isinstance(info, bytes):
            found[info, ts_ms] = None
        elif info is not None:
            found[b"", ts_ms] = info
    return list(found), {row: error for row, error in enumerate(found.values()) if error}


def _rows(
    labels: NDArray[np.uint8],
    label_starts: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    gone: _Gone,
    info: list[tuple[bytes, int]],
    errors: Mapping[int, InvalidRequest],
    exemplars: RowExemplars | None,
    details: SampleDetails | None,
) -> Rows:
    """One sample a row: the points' rows, those of boundaries that are gone, then the `target_info` rows with the value
    1."""
    used = int(label_starts[-1])
    labels = labels[:used]
    more = [*gone.labels, *(one for one, _ in info)]
    if more:
        labels = np.concatenate([labels, np.frombuffer(b"".join(more), np.uint8)])
        label_starts = np.concatenate([label_starts, used + np.cumsum(list(map(len, more)))])
        ts_ms = np.concatenate([ts_ms, np.array([*gone.ts_ms, *(time for _, time in info)], np.int64)])
        bits = np.concatenate(
            [values.view(np.int64), np.full(len(gone.labels), STALE_BITS), np.ones(len(info)).view(np.int64)]
        )
        values = bits.view(np.float64)
    starts = np.arange(len(ts_ms) + 1, dtype=np.int64)
    return Rows(labels, label_starts, starts, ts_ms, values, errors, exemplars, details)
