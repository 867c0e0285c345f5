"""Pages in the protobuf format are read as Prometheus reads them, and bad ones are refused by name."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsdb.cli.samples import protobuf
from tsdb.cli.samples.exposition import ExposedExemplar, ExposedSample, ExpositionParser
from tsdb.cli.samples.protobuf import ACCEPT, is_protobuf, protobuf_samples
from tsdb.model.errors import InvalidRequest
from tsdb.model.histograms import GAUGE, UNKNOWN, HistogramShape
from tsdb.model.labels import canonical_labels, parse_labels
from tsdb.v1.exposition_pb2 import ExposedFamily, ExposedMetric

Types = ExposedFamily.Type
Pair = ExposedMetric.LabelPair
START: Any = {"seconds": 5, "nanos": 250_000_000}
BEGIN: Any = {"start_timestamp": START}


def delimited(*families: ExposedFamily) -> bytes:
    found = b""
    for family in families:
        data, length = family.SerializeToString(), len(family.SerializeToString())
        while length >= 0x80:
            found += bytes([length & 0x7F | 0x80])
            length >>= 7
        found += bytes([length]) + data
    return found


def family(kind: Any, *metrics: ExposedMetric, name: str = "m") -> ExposedFamily:
    return ExposedFamily(name=name, type=kind, metric=[metric.SerializeToString() for metric in metrics])


def read(page: bytes) -> list[ExposedSample]:
    parser = ExpositionParser({"job": "j"}, as_scraped=True)
    return [sample for sample, _ in protobuf_samples(page, parser, "page")]


def shown(samples: Sequence[ExposedSample]) -> list[tuple[str, float, int]]:
    """(name with its own labels, value, start) of each sample."""
    found = []
    for sample in samples:
        labels = dict(parse_labels(sample.canonical))
        assert labels.pop("job") == "j"
        name = labels.pop("__name__")
        found.append(
            (name + "".join(f" {key}={value}" for key, value in labels.items()), sample.value, sample.start_ms)
        )
    return found


def histogram(**fields: Any) -> ExposedMetric.Histogram:
    """Six observations: one of zero, two and three in buckets 4 and 5 of schema 3."""
    given: dict[str, Any] = {
        "sample_count": 6,
        "sample_sum": 1.5,
        "schema": 3,
        "zero_count": 1,
        "zero_threshold": 0.001,
        "positive_span": [ExposedMetric.Span(offset=4, length=2)],
        "positive_delta": [2, 1],
    }
    return ExposedMetric.Histogram(**{**given, **fields})


def test_each_type_becomes_the_series_of_its_text_with_its_start() -> None:
    counter = ExposedMetric(label=[Pair(name="a", value="b")], counter=ExposedMetric.Counter(value=3, **BEGIN))
    summary = ExposedMetric.Summary(sample_count=2, sample_sum=0.5, **BEGIN)
    summary.quantile.add(quantile=0.99, value=0.25)
    classic = ExposedMetric.Histogram(sample_count=4, sample_sum=9.0, **BEGIN)
    classic.bucket.add(cumulative_count=3, upper_bound=1)
    page = delimited(
        family(Types.COUNTER, counter, name="c"),
        family(Types.GAUGE, ExposedMetric(gauge=ExposedMetric.Gauge(value=-0.5)), name="g"),
        family(Types.UNTYPED, ExposedMetric(untyped=ExposedMetric.Gauge(value=7)), name="u"),
        family(Types.SUMMARY, ExposedMetric(summary=summary), name="s"),
        family(Types.HISTOGRAM, ExposedMetric(histogram=classic), name="h"),
        family(Types.GAUGE, name="empty"),
    )
    assert shown(read(page)) == [
        ("c a=b", 3.0, 5250),
        ("g", -0.5, 0),
        ("u", 7.0, 0),
        ("s_count", 2.0, 5250),
        ("s_sum", 0.5, 5250),
        ("s quantile=0.99", 0.25, 5250),
        ("h_count", 4.0, 5250),
        ("h_sum", 9.0, 5250),
        ("h_bucket le=1.0", 3.0, 5250),
        ("h_bucket le=+Inf", 4.0, 5250),
    ]


def test_a_native_histogram_is_one_sample_without_its_classic_buckets() -> None:
    data = histogram(**BEGIN)
    data.bucket.add(cumulative_count=6, upper_bound=1)
    metric = ExposedMetric(histogram=data, timestamp_ms=77)
    (sample,) = read(delimited(family(Types.HISTOGRAM, metric)))
    assert (sample.ts_ms, sample.value, sample.start_ms) == (77, 1.5, 5250)
    found = sample.histogram
    assert found is not None
    assert found.shapes == (HistogramShape(3, 0.001, ((4, 2),)),)
    assert (found.buckets.tolist(), found.counts.tolist(), found.zero_counts.tolist()) == ([2.0, 3.0], [6.0], [1.0])
    assert (found.hints.tolist(), found.is_integer.tolist()) == ([UNKNOWN], [True])


def test_a_gauge_histogram_with_float_counts_keeps_both() -> None:
    data = histogram(sample_count_float=2.5, zero_count_float=0.5, positive_count=[0.75, 1.25], positive_delta=[])
    (sample,) = read(delimited(family(Types.GAUGE_HISTOGRAM, ExposedMetric(histogram=data))))
    found = sample.histogram
    assert found is not None
    assert (found.buckets.tolist(), found.counts.tolist()) == ([0.75, 1.25], [2.5])
    assert (found.hints.tolist(), found.is_integer.tolist()) == ([GAUGE], [False])


def test_an_empty_span_marks_a_native_histogram_without_observations() -> None:
    data = ExposedMetric.Histogram(schema=3, positive_span=[ExposedMetric.Span()])
    (sample,) = read(delimited(family(Types.HISTOGRAM, ExposedMetric(histogram=data))))
    assert sample.histogram is not None
    assert len(sample.histogram.buckets) == 0


def test_exemplars_come_along_and_those_of_native_histograms_need_a_time() -> None:
    exemplar = ExposedMetric.ExemplarPoint(label=[Pair(name="trace", value="t")], value=0.5)
    timed = ExposedMetric.ExemplarPoint(value=0.25, timestamp=START)
    counter = ExposedMetric(counter=ExposedMetric.Counter(value=1, exemplar=exemplar))
    native = ExposedMetric(histogram=histogram(exemplars=[exemplar, timed]))
    samples = read(delimited(family(Types.COUNTER, counter), family(Types.HISTOGRAM, native, name="h")))
    assert [sample.exemplars for sample in samples] == [
        (ExposedExemplar(canonical_labels({"trace": "t"}), None, 0.5),),
        (ExposedExemplar(b"", 5250, 0.25),),
    ]


@pytest.mark.parametrize(
    ("page", "what"),
    [
        (b"\x05abc", "the page was cut short, 2 bytes are missing"),
        (b"\xff\xff\xff\xff\xff\xff", "begins no length"),
        (b"\xff\xff\xff\xff\x0f", "a family of 4294967295 bytes"),
        (b"\x03abc", "not a message"),
        (delimited(family(Types.GAUGE, name="")), "no metric name"),
        (delimited(ExposedFamily(name="m", type=9)), "type 9 is unknown"),  # type: ignore[arg-type]
        (delimited(ExposedFamily(name="m", metric=[b"\xff"])), "not a message"),
        (
            delimited(family(Types.GAUGE, ExposedMetric(label=[Pair(name="a", value="1"), Pair(name="a", value="2")]))),
            "stands there twice",
        ),
        (
            delimited(ExposedFamily(name="m", metric=[b"\x0a\xff\xff\x3f" + bytes((1 << 20) - 1)])),
            "the limit is 1048576",
        ),
    ],
)
def test_a_bad_page_is_refused_by_name(page: bytes, what: str) -> None:
    with pytest.raises(InvalidRequest, match="page") as refused:
        read(page)
    assert what in refused.value.message


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"schema": 9}, "schema 9"),
        ({"positive_span": [ExposedMetric.Span(offset=4, length=2**32 - 1)]}, "histogram"),
        ({"positive_span": [ExposedMetric.Span(offset=4, length=3)]}, "spans and counts differ"),
        ({"positive_delta": [2, -3], "sample_count": 2}, "negative"),
        ({"sample_count": 9}, "mismatch"),
        ({"sample_count": 2**63}, "histogram"),
    ],
)
def test_a_histogram_without_a_meaning_fails_the_page(fields: dict[str, Any], what: str) -> None:
    page = delimited(family(Types.HISTOGRAM, ExposedMetric(histogram=histogram(**fields)), name="lat"))
    with pytest.raises(InvalidRequest, match="family 1 'lat'") as refused:
        read(page)
    assert what in refused.value.message


def test_a_page_of_tiny_series_is_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    page = delimited(ExposedFamily(name="m", metric=[b""] * 10_000))
    samples = protobuf_samples(page, ExpositionParser(), "page")
    assert next(samples)[0].value == 0.0
    monkeypatch.setattr(protobuf, "FAMILY_BYTES_MAX", 100)
    with pytest.raises(InvalidRequest, match="the limit is 100"):
        next(protobuf_samples(page, ExpositionParser(), "page"))


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.integers(0, 200))
def test_a_damaged_page_is_read_or_refused(at: int, bit: int, cut: int) -> None:
    whole = delimited(
        family(Types.HISTOGRAM, ExposedMetric(histogram=histogram(exemplars=[{"timestamp": START}])), name="h"),
        family(Types.COUNTER, ExposedMetric(counter=ExposedMetric.Counter(value=1, **BEGIN)), name="c"),
    )
    page = bytearray(whole[: len(whole) - cut % len(whole)])
    page[at % len(page)] ^= 1 << bit
    try:
        samples = read(bytes(page))
    except InvalidRequest:
        return
    assert all(sample.histogram is None or len(sample.histogram) == 1 for sample in samples)


def test_values_keep_their_bits() -> None:
    bits = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
    (sample,) = read(delimited(family(Types.GAUGE, ExposedMetric(gauge=ExposedMetric.Gauge(value=bits)))))
    assert np.float64(sample.value).view(np.uint64) == 0x7FF0000000000002


def test_only_delimited_families_are_the_format() -> None:
    assert is_protobuf(ACCEPT)
    assert is_protobuf("application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited")
    assert not is_protobuf("text/plain; version=0.0.4")
    assert not is_protobuf("")
    with pytest.raises(InvalidRequest, match="wanted"):
        is_protobuf("application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=text")
