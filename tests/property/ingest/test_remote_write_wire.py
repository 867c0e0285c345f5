"""Remote-write decoding against Google's protobuf library, and against bytes that are cut or flipped."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from ingest.bucket_memory import BucketMemory
from ingest.limits import IngestLimits
from ingest.remote_write.classic_rows import with_histograms
from ingest.remote_write.detailed_rows import with_details
from ingest.remote_write.histograms import decode_histograms
from ingest.remote_write.wire import VERSION_1, VERSION_2, Wire, decode_wire
from support.senders.remote_write import ONE, TWO, request_1, request_2
from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest
from tsdb.model.histograms import PROBLEMS, HistogramShape, InvalidHistogram, Span, count_problems

LIMITS = IngestLimits(series_max=1000, samples_max=1000, request_bytes_max=1 << 20)

texts = st.one_of(st.text(max_size=8).map(str.encode), st.binary(max_size=4))
labels = st.lists(st.tuples(texts, texts), max_size=4)
values = st.integers(-(2**63), 2**63 - 1).map(lambda bits: float(np.int64(bits).view(np.float64)))
samples = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), values), max_size=3)
requests = st.lists(st.tuples(labels, samples), max_size=5)


def decode(data: bytes, version: int) -> Wire:
    return decode_wire(data, version, LIMITS, lambda _: None)


def twin_labels(pairs: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Labels as the kernel must join them; None when one has the byte of the separator."""
    kept = [part for pair in pairs if pair[1] for part in pair]
    return None if any(b"\xff" in part for part in kept) else b"\xff".join(kept)


def twin(message: Any, version: int) -> list[tuple[bytes | None, list[tuple[int, int]]]]:
    """(labels, samples as time and bits) of each series, by the library."""
    found = []
    for series in message.timeseries:
        if version == VERSION_1:
            pairs = [(label.name, label.value) for label in series.labels]
        else:
            parts = [message.symbols[reference] for reference in series.labels_refs]
            pairs = list(zip(parts[::2], parts[1::2], strict=True))
        bits = np.array([sample.value for sample in series.samples], np.float64).view(np.int64).tolist()
        times = [sample.timestamp for sample in series.samples]
        found.append((twin_labels(pairs), list(zip(times, bits, strict=True))))
    return found


def shown(wire: Wire) -> list[tuple[bytes | None, list[tuple[int, int]]]]:
    rows, bits = wire.rows, wire.rows.values.view(np.int64)
    return [
        (
            None if row in rows.errors else rows.labels_of(row),
            [(int(rows.ts_ms[at]), int(bits[at])) for at in range(rows.starts[row], rows.starts[row + 1])],
        )
        for row in range(len(rows))
    ]


@given(requests, st.sampled_from([VERSION_1, VERSION_2]))
def test_rows_are_those_of_the_library(series: Any, version: int) -> None:
    data = (request_1(series) if version == VERSION_1 else request_2(series)).SerializeToString()
    kind = ONE["WriteRequest"] if version == VERSION_1 else TWO["Request"]
    assert shown(decode(data, version)) == twin(kind.FromString(data), version)


def full_message(version: int) -> bytes:
    """Every kind of field."""
    series: list[Any] = [({"__name__": f"m{n}", "job": "j", "e": ""}, [(n, n / 3), (-n, math.nan)]) for n in range(4)]
    message = request_1(series, [("m", 1, "help", "s")]) if version == VERSION_1 else request_2(series, (3, "h", "s"))
    for one in message.timeseries:
        one.exemplars.add(value=1.0, timestamp=5)
        histogram = one.histograms.add(schema=2, count_int=3, sum=1.5, zero_threshold=0.1, timestamp=7)
        histogram.positive_spans.add(offset=-3, length=2)
        histogram.positive_deltas.extend([1, 1])
        histogram.custom_values.extend([1.0])
    data: bytes = message.SerializeToString()
    return data


def outcome(data: bytes, version: int) -> list[Any] | None:
    """All that is made of a body; None for one that is refused."""
    reason = ""
    try:
        wire = decode(data, version)
        rows = with_histograms(wire, data, BucketMemory(), accept=True, reserve=lambda _: None)
    except InvalidRequest as error:
        reason = error.reason
    if reason:
        assert reason in ("malformed_request", "too_many_series", "too_many_samples", "request_too_large")
        return None
    assert rows.label_starts[-1] == len(rows.labels)
    assert rows.starts[-1] == len(rows.ts_ms) == len(rows.values)
    assert (np.diff(rows.label_starts) >= 0).all()
    assert (np.diff(rows.starts) >= 0).all()
    assert wire.metadata.min(initial=0) >= -(2**63)
    assert not len(wire.metadata) or wire.metadata[:, 1:].max() <= len(data)
    return shown(wire)


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
def test_a_message_cut_anywhere_is_refused_or_its_own_prefix(version: int) -> None:
    data = full_message(version)
    kind = ONE["WriteRequest"] if version == VERSION_1 else TWO["Request"]
    for end in range(len(data)):
        found = outcome(data[:end], version)
        try:
            message = kind.FromString(data[:end])
        except DecodeError:
            assert found is None, f"cut at byte {end}"
            continue
        assert found is not None, f"cut at byte {end}"
        assert len(found) == len(message.timeseries)


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
def test_flipped_bits_give_an_answer_and_what_the_library_accepts_decodes_alike(version: int) -> None:
    data, dice = full_message(version), random.Random(7)
    kind = ONE["WriteRequest"] if version == VERSION_1 else TWO["Request"]
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(dice.choice((1, 1, 2, 8))):
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        found = outcome(bytes(damaged), version)
        try:
            message = kind.FromString(bytes(damaged))
        except DecodeError:
            continue
        if found is not None:
            assert [row[1] for row in found] == [row[1] for row in twin_samples(message)]


def twin_samples(message: Any) -> list[tuple[None, list[tuple[int, int]]]]:
    return [
        (
            None,
            [(sample.timestamp, int(np.float64(sample.value).view(np.int64))) for sample in series.samples],
        )
        for series in message.timeseries
    ]


@given(st.binary(max_size=200))
def test_any_bytes_give_an_answer(data: bytes) -> None:
    for version in (VERSION_1, VERSION_2):
        outcome(data, version)


spans = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 3)), max_size=3)
counts = st.lists(st.integers(-2, 5), max_size=6)
uncommon = st.sampled_from([math.nan, -0.0, 1e308, math.inf, 0.25])
numbers = st.fixed_dictionaries(
    {},
    optional={
        "count_int": st.integers(0, 2**64 - 1),
        "count_float": uncommon,
        "zero_count_int": st.integers(0, 2**64 - 1),
        "zero_count_float": uncommon,
        "sum": values,
        "schema": st.sampled_from([-54, -53, -4, 0, 8, 9, 12, 52, 53]),
        "zero_threshold": uncommon,
        "reset_hint": st.integers(0, 3),
        "timestamp": st.integers(-(2**63), 2**63 - 1),
        "start_timestamp": st.integers(0, 9),
        "custom_values": st.lists(uncommon, max_size=3),
        "positive_deltas": counts,
        "positive_counts": st.lists(uncommon, max_size=4),
        "negative_deltas": counts,
        "negative_counts": st.lists(uncommon, max_size=4),
    },
)


def histogram_message(fields: Any, positive: Any, negative: Any) -> Any:
    message = ONE["Histogram"](**fields)
    for offset, length in positive:
        message.positive_spans.add(offset=offset, length=length)
    for offset, length in negative:
        message.negative_spans.add(offset=offset, length=length)
    return message


def twin_histogram(message: Any) -> tuple[HistogramShape | None, list[float], str]:
    """(shape, buckets, reason of a refusal) by the library and by plain Python."""
    is_integer = message.WhichOneof("count") == "count_int"
    pairs = [[(span.offset, span.length) for span in side] for side in (message.positive_spans, message.negative_spans)]
    bounds = tuple(message.custom_values)
    finer_by = message.schema - 8 if 8 < message.schema <= 52 else 0
    try:
        shape = HistogramShape(
            message.schema - finer_by, message.zero_threshold, tuple(pairs[0]), tuple(pairs[1]), bounds
        )
    except InvalidHistogram as error:
        return None, [], error.reason
    if is_integer:
        sides = [accumulate(message.positive_deltas), accumulate(message.negative_deltas)]
    else:
        sides = [message.positive_counts, message.negative_counts]
    found = [[float(count) for count in side] for side in sides]
    if [len(side) for side in found] != [shape.positive_buckets, shape.negative_buckets]:
        return None, [], "histogram_spans_mismatch"
    if finer_by:
        reduced = [twin_side(*side, finer_by) for side in zip(pairs, found, strict=True)]
        found = [buckets for _, buckets in reduced]
        shape = replace(shape, positive=reduced[0][0], negative=reduced[1][0])
    return shape, found[0] + found[1], ""


def twin_side(pairs: list[Span], counts: list[float], by: int) -> tuple[tuple[Span, ...], list[float]]:
    """(spans, buckets) of one side whose schema becomes lower."""
    buckets: dict[int, float] = {}
    at, left = 0, list(counts)
    for offset, length in pairs:
        at += offset
        for index in range(at, at + length):
            target = math.ceil(Fraction(index, 2**by))
            count = left.pop(0)
            buckets[target] = buckets[target] + count if target in buckets else count
        at += length
    joined: list[Span] = []
    end = 0
    for index in buckets:
        if joined and index == end:
            joined[-1] = joined[-1][0], joined[-1][1] + 1
        else:
            joined.append((index - end, 1))
        end = index + 1
    return tuple(joined), list(buckets.values())


@given(st.lists(st.tuples(numbers, spans, spans), min_size=1, max_size=4))
def test_histograms_are_those_of_the_library(drawn: Any) -> None:
    messages = [histogram_message(*one) for one in drawn for _ in range(2)]
    parts = [message.SerializeToString() for message in messages]
    ends = np.cumsum([len(part) for part in parts])
    table = np.array([[0, end - len(part), end] for part, end in zip(parts, ends, strict=True)], np.int64)
    found = decode_histograms(b"".join(parts), table, lambda _: None)
    assert len(set(found.columns.shapes)) >= len(found.columns.shapes) - len(found.errors) - 1, "a shape comes once"
    for index, message in enumerate(messages):
        of_fields = message.WhichOneof("count") == "count_int"
        zero = message.zero_count_int if of_fields else message.zero_count_float
        columns, reason = found.columns, found.errors[index].reason if index in found.errors else ""
        shape, buckets, refused = twin_histogram(message)
        if shape is None:
            assert reason == refused
            continue
        assert columns.shapes[columns.shape_of[index]] == shape or math.isnan(shape.zero_threshold)
        kept = columns.buckets[columns.starts[index] : columns.starts[index + 1]]
        assert kept.tobytes() == np.array(buckets, np.float64).tobytes()
        count = message.count_int if of_fields else message.count_float
        assert columns.counts[index : index + 1].tobytes() == np.float64(count).tobytes()
        assert columns.zero_counts[index : index + 1].tobytes() == np.float64(zero).tobytes()
        assert columns.sums[index : index + 1].tobytes() == np.float64(message.sum).tobytes()
        assert (columns.hints[index], columns.is_integer[index]) == (message.reset_hint, of_fields)
        assert (found.ts_ms[index], found.start_ms[index]) == (message.timestamp, message.start_timestamp)
        assert reason == PROBLEMS[count_problems(columns.take(np.array([index])))[0]]


@given(st.binary(max_size=200))
def test_any_bytes_of_a_histogram_give_an_answer(data: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        found = decode_histograms(data, np.array([[0, 0, len(data)]], np.int64), lambda _: None)
        assert len(found.columns) == 1


kept_histograms = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 3)), max_size=3)
kept_samples = st.lists(st.tuples(st.integers(0, 9), values, st.integers(0, 3)), max_size=3)


@given(st.lists(st.tuples(kept_samples, kept_histograms), max_size=4))
def test_rows_with_details_have_the_floats_then_the_histograms_of_each_series(drawn: Any) -> None:
    message = request_2([({"__name__": f"m{row}"}, []) for row in range(len(drawn))])
    expected: list[list[tuple[int, bytes, int, int]]] = []
    for series, (floats, histograms) in zip(message.timeseries, drawn, strict=True):
        for ts_ms, value, start_ms in floats:
            series.samples.add(timestamp=ts_ms, value=value, start_timestamp=start_ms)
        for ts_ms, count, start_ms in histograms:
            series.histograms.add(
                timestamp=ts_ms, count_int=count, zero_count_int=count, sum=count / 2, start_timestamp=start_ms
            )
        expected.append([(ts_ms, np.float64(value).tobytes(), start_ms, -1) for ts_ms, value, start_ms in floats])
        expected[-1] += [(ts_ms, np.float64(count / 2).tobytes(), start, count) for ts_ms, count, start in histograms]
    body = message.SerializeToString()
    rows = with_details(decode(body, VERSION_2), body, lambda _: None)
    samples, details = rows.samples, rows.details or SampleDetails()
    start_ms = np.zeros(samples, np.int64) if details.start_ms is None else details.start_ms
    counts = np.full(samples, -1, np.int64)
    if details.histograms is not None and details.histogram_of is not None:
        counts[details.histogram_of >= 0] = details.histograms.counts[details.histogram_of[details.histogram_of >= 0]]
    assert (rows.details is None) == (not any(start or count >= 0 for row in expected for _, _, start, count in row))
    shown = [
        (int(rows.ts_ms[at]), rows.values[at : at + 1].tobytes(), int(start_ms[at]), int(counts[at]))
        for at in range(samples)
    ]
    assert [shown[rows.starts[row] : rows.starts[row + 1]] for row in range(len(rows))] == expected


def test_a_row_with_a_refused_histogram_is_refused_and_the_others_keep_theirs() -> None:
    message = request_2([({"__name__": "good"}, [(1, 2.0)]), ({"__name__": "bad"}, [(1, 3.0)])])
    for series, count in zip(message.timeseries, (0, 7), strict=True):
        series.histograms.add(timestamp=2, count_int=count)
    body = message.SerializeToString()
    rows = with_details(decode(body, VERSION_2), body, lambda _: None)
    assert {row: (error.reason, "'bad'" in error.message) for row, error in rows.errors.items()} == {
        1: ("histogram_count_mismatch", True)
    }
