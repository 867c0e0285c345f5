"""Reads a page in Prometheus's protobuf format: floats, native histograms, start timestamps and exemplars.

The messages are those of proto/tsdb/v1/exposition.proto. As in Prometheus with `scrape_native_histograms`, a histogram
with native buckets is one sample, and its classic buckets are left out; one without becomes the series of its text.
Everything that a page claims is checked before memory is taken for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from tsdb.cli.samples.exposition import ExposedExemplar, ExposedSample, ExpositionParser, float_text
from tsdb.cli.terminal.errors import shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.histograms import (
    GAUGE,
    UNKNOWN,
    HistogramColumns,
    HistogramShape,
    InvalidHistogram,
    Span,
    count_errors,
    one_histogram,
)
from tsdb.model.labels import canonical_labels
from tsdb.v1.exposition_pb2 import ExposedFamily, ExposedMetric

CONTENT_TYPE = "application/vnd.google.protobuf"
ACCEPT = f"{CONTENT_TYPE};proto=io.prometheus.client.MetricFamily;encoding=delimited"
# A decoded family takes up to 16 bytes for each 2 bytes of it, a decoded metric up to 60.
FAMILY_BYTES_MAX = 32 << 20
METRIC_BYTES_MAX = 1 << 20  # Hundreds of times a histogram with 160 buckets and ten exemplars.
LENGTH_BYTES_MAX = 5  # A varint of 32 bits.


def is_protobuf(content_type: str) -> bool:
    """Whether a page has the format. Raises InvalidRequest for another message or encoding of protobuf."""
    kind, *parameters = (part.strip() for part in content_type.split(";"))
    if kind.lower() != CONTENT_TYPE:
        return False
    given = dict(part.replace(" ", "").partition("=")[::2] for part in parameters)
    if given.get("proto") != "io.prometheus.client.MetricFamily" or given.get("encoding") != "delimited":
        raise InvalidRequest(f"a page of {shown(content_type)}; wanted: {ACCEPT}", reason="bad_input")
    return True


def protobuf_samples(page: bytes, parser: ExpositionParser, place: str) -> Iterator[tuple[ExposedSample, str]]:
    """The samples of a page in its order, each with its place. parser: gives labels those of the target. Raises
    InvalidRequest, which names the place."""
    for number, message in enumerate(_messages(page, place), start=1):
        where = f"{place}, family {number}"
        family = ExposedFamily()
        _parse(family, message, where)
        if not family.name:
            raise InvalidRequest(f"{where}: no metric name", reason="bad_input")
        where += f" {shown(family.name)}"
        if family.type not in ExposedFamily.Type.values():
            raise InvalidRequest(f"{where}: type {family.type} is unknown", reason="bad_input")
        for data in family.metric:
            if len(data) > METRIC_BYTES_MAX:
                raise InvalidRequest(
                    f"{where}: a series of {len(data)} bytes; the limit is {METRIC_BYTES_MAX}", reason="bad_input"
                )
            metric = ExposedMetric()
            _parse(metric, data, where)
            try:
                for sample in _Series(family, metric, parser, where).samples():
                    yield sample, where
            except InvalidHistogram as error:
                raise InvalidRequest(f"{where}: {error.message}", reason="bad_input") from None


def _messages(page: bytes, place: str) -> Iterator[bytes]:
    """The families, which stand behind their lengths."""
    at = 0
    while at < len(page):
        length, begin = _length(page, at, place)
        if length > FAMILY_BYTES_MAX:
            raise InvalidRequest(
                f"{place}: a family of {length} bytes; the limit is {FAMILY_BYTES_MAX}", reason="bad_input"
            )
        at = begin + length
        if at > len(page):
            raise InvalidRequest(
                f"{place}: the page was cut short, {at - len(page)} bytes are missing", reason="bad_input"
            )
        yield page[begin:at]


def _length(page: bytes, at: int, place: str) -> tuple[int, int]:
    """The varint at a place, and the place behind it."""
    length = 0
    for index, byte in enumerate(page[at : at + LENGTH_BYTES_MAX]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return length, at + index + 1
    raise InvalidRequest(f"{place}: byte {at} begins no length of a family", reason="bad_input")


def _parse(message: ExposedFamily | ExposedMetric, data: bytes, place: str) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise InvalidRequest(f"{place}: not a message of protobuf", reason="bad_input") from None


class _Series:
    """The samples of one metric of a family: one, or those of a summary or a classic histogram."""

    def __init__(self, family: ExposedFamily, metric: ExposedMetric, parser: ExpositionParser, place: str) -> None:
        self._name, self._type = family.name, family.type
        self._metric = metric
        self._labels = {pair.name: pair.value for pair in metric.label}
        if len(self._labels) < len(metric.label) or "__name__" in self._labels:
            raise InvalidRequest(f"{place}: a label stands there twice", reason="bad_input")
        self._parser = parser
        self._ts_ms = metric.timestamp_ms or None
        self._start_ms = 0

    def samples(self) -> Iterator[ExposedSample]:
        metric, types = self._metric, ExposedFamily.Type
        if self._type == types.COUNTER:
            self._begins(metric.counter)
            exemplar = metric.counter.exemplar if metric.counter.HasField("exemplar") else None
            yield self._sample("", metric.counter.value, exemplar)
        elif self._type == types.GAUGE:
            yield self._sample("", metric.gauge.value)
        elif self._type == types.UNTYPED:
            yield self._sample("", metric.untyped.value)
        elif self._type == types.SUMMARY:
            self._begins(metric.summary)
            yield self._sample("_count", float(metric.summary.sample_count))
            yield self._sample("_sum", metric.summary.sample_sum)
            for one in metric.summary.quantile:
                yield self._sample("", one.value, label=("quantile", one.quantile))
        else:
            self._begins(metric.histogram)
            yield from [self._native()] if _is_native(metric.histogram) else self._classic()

    def _begins(self, data: ExposedMetric.Counter | ExposedMetric.Summary | ExposedMetric.Histogram) -> None:
        if data.HasField("start_timestamp"):
            self._start_ms = _ms(data.start_timestamp.seconds, data.start_timestamp.nanos)

    def _classic(self) -> Iterator[ExposedSample]:
        data = self._metric.histogram
        count = data.sample_count_float or float(data.sample_count)
        yield self._sample("_count", count)
        yield self._sample("_sum", data.sample_sum)
        bound = -math.inf
        for one in data.bucket:
            exemplar = one.exemplar if one.HasField("exemplar") else None
            bound = one.upper_bound
            value = one.cumulative_count_float or float(one.cumulative_count)
            yield self._sample("_bucket", value, exemplar, label=("le", bound))
            if bound == math.inf:
                return
        yield self._sample("_bucket", count, label=("le", math.inf))

    def _native(self) -> ExposedSample:
        data = self._metric.histogram
        histogram = _histogram(data, is_gauge=self._type == ExposedFamily.Type.GAUGE_HISTOGRAM)
        listed = data.exemplars or [one.exemplar for one in data.bucket if one.HasField("exemplar")]
        # Prometheus drops exemplars of native histograms that have no time.
        exemplars = tuple(_exemplar(one) for one in listed if one.HasField("timestamp"))
        labels = self._parser.of_target({**self._labels, "__name__": self._name})
        return ExposedSample(labels, self._ts_ms, data.sample_sum, exemplars, self._start_ms, histogram)

    def _sample(
        self,
        suffix: str,
        value: float,
        exemplar: ExposedMetric.ExemplarPoint | None = None,
        label: tuple[str, float] | None = None,
    ) -> ExposedSample:
        labels = {**self._labels, "__name__": f"{self._name}{suffix}"}
        if label is not None:
            labels[label[0]] = float_text(repr(label[1]))
        exemplars = () if exemplar is None else (_exemplar(exemplar),)
        return ExposedSample(self._parser.of_target(labels), self._ts_ms, value, exemplars, self._start_ms)


def _is_native(data: ExposedMetric.Histogram) -> bool:
    return bool(data.positive_span or data.negative_span or data.zero_threshold > 0 or data.zero_count > 0)


def _histogram(data: ExposedMetric.Histogram, *, is_gauge: bool) -> HistogramColumns:
    """Columns of one histogram, with the rules of Prometheus. Raises InvalidHistogram."""
    is_float = data.sample_count_float > 0 or data.zero_count_float > 0
    spans = [_spans(side) for side in (data.positive_span, data.negative_span)]
    shape = HistogramShape(data.schema, data.zero_threshold, spans[0], spans[1])
    if is_float:
        sides = [np.array(side, np.float64) for side in (data.positive_count, data.negative_count)]
        count, zero_count = data.sample_count_float, data.zero_count_float
    else:
        sides = [_running(side) for side in (data.positive_delta, data.negative_delta)]
        count, zero_count = float(data.sample_count), float(data.zero_count)
    if [len(side) for side in sides] != [shape.positive_buckets, shape.negative_buckets]:
        raise InvalidHistogram("invalid histogram: spans and counts differ", reason="histogram_spans_mismatch")
    columns = one_histogram(
        shape,
        np.concatenate(sides),
        count=count,
        total=data.sample_sum,
        zero_count=zero_count,
        hint=GAUGE if is_gauge else UNKNOWN,
        is_integer=not is_float,
    )
    for error in count_errors(columns).values():
        raise error
    return columns


def _spans(spans: Iterable[ExposedMetric.Span]) -> tuple[Span, ...]:
    """Without the empty span that marks a native histogram which has no observation yet."""
    pairs = tuple((span.offset, span.length) for span in spans)
    return () if all(length == 0 for _, length in pairs) else pairs


def _running(deltas: Iterable[int]) -> NDArray[np.float64]:
    """Counts from the differences of neighbours. Sums beyond 64 bits wrap as in Prometheus."""
    return np.cumsum(np.fromiter(deltas, np.int64)).astype(np.float64)


def _exemplar(point: ExposedMetric.ExemplarPoint) -> ExposedExemplar:
    ts_ms = _ms(point.timestamp.seconds, point.timestamp.nanos) if point.HasField("timestamp") else None
    return ExposedExemplar(canonical_labels({pair.name: pair.value for pair in point.label}), ts_ms, point.value)


def _ms(seconds: int, nanos: int) -> int:
    return seconds * 1000 + int(nanos / 1_000_000)
