"""Rows keep their order, join over one list of labels, and group by series; malformed lines are refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tsdb.cli.samples.rows import SampleRows, join_rows
from tsdb.cli.samples.source import Format, read_rows
from tsdb.cli.samples.text import read_jsonl
from tsdb.client import RequestLimits
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels

A, B, C = b"__name__\xffa", b"__name__\xffb", b"__name__\xffc"


def rows(labels: list[bytes], codes: list[int], ts_ms: list[int], values: list[float] | None = None) -> SampleRows:
    numbers = np.arange(len(codes), dtype=np.float64) if values is None else np.array(values)
    return SampleRows(labels, np.array(codes, np.int32), np.array(ts_ms, np.int64), numbers)


def test_rows_by_time_keep_the_order_of_equal_times() -> None:
    assert rows([A], [0] * 5, [3, 1, 3, 1, 2]).by_time().values.tolist() == [1, 3, 4, 0, 2]
    already = rows([A], [0] * 3, [1, 1, 2])
    assert already.by_time() is already


def test_joined_rows_share_labels() -> None:
    joined = join_rows([rows([A, B], [1, 0], [1, 2]), rows([C, B], [0, 1], [3, 4])])
    assert [joined.labels[code] for code in joined.codes] == [B, A, C, B]
    assert joined.labels == [A, B, C]
    assert joined.ts_ms.tolist() == [1, 2, 3, 4]
    assert len(join_rows([])) == 0


def test_a_batch_groups_by_series_in_the_order_of_rows() -> None:
    batch = rows([A, B, C], [2, 0, 2, 0, 1], [1, 2, 3, 4, 5]).batch(0, 4)
    [part] = batch.parts(RequestLimits())
    assert list(part.request.labels) == [A, C]
    assert np.frombuffer(part.request.ts_ms, "<i8").tolist() == [2, 4, 1, 3]
    assert np.frombuffer(part.request.values, "<f8").tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"labels": {"__name__": "a"}, "ts_ms": 1, "value": null}', "value must be a number"),
        ('{"labels": {"__name__": "a"}, "ts_ms": 1, "value": true}', "value must be a number"),
        ('{"labels": {"__name__": "a"}, "ts_ms": 1, "value": "1"}', "value must be a number"),
        ('{"labels": {"__name__": "a"}, "ts_ms": 1, "value": 1e400}', "beyond float64"),
        ('{"labels": {"__name__": "a"}, "ts_ms": 1, "value": -1e400}', "beyond float64"),
        ('{"labels": {"__name__": "a"}, "ts_ms": 1, "value": NaN}', "NaN is no JSON: put it in quotes"),
        ('{"labels": {"__name__": "a"}, "ts_ms": 1, "value": Infinity}', "Infinity is no JSON"),
        ('{"labels": {"__name__": "a"}, "ts_ms": null, "value": 1}', "ts_ms must be an integer"),
        ('{"labels": {"__name__": "a"}, "ts_ms": true, "value": 1}', "ts_ms must be an integer"),
        ('{"labels": {"__name__": "a"}, "ts_ms": 1.5, "value": 1}', "finer than a millisecond"),
        ('{"labels": {"__name__": "a", "x": null}, "ts_ms": 1, "value": 1}', "an object of strings"),
        ('{"labels": {"__name__": "a", "x": "1", "x": "2"}, "ts_ms": 1, "value": 1}', "'x' is given twice"),
        ('{"labels": {"__name__": "a"}, "ts_ms": 1, "ts_ms": 2, "value": 1}', "'ts_ms' is given twice"),
        ('{"labels": {"__name__": "a"}, "ts_ms": 1, "value": 1, "unit": "s"}', "'unit' is not known"),
        ('{"labels": {"__name__": "a"}, "ts_ms": 1}', "no value"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_json_line_that_is_not_by_the_letter_is_refused_by_name(line: str, what: str) -> None:
    with pytest.raises(InvalidRequest, match=what) as refused:
        list(read_jsonl(io.BytesIO(line.encode()), "some.jsonl"))
    assert "some.jsonl, line 1" in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("jsonl", '{"labels": {"__name__": "a"}, "ts_ms": 1, "value": 2}\n'),
        ("prom", "a 2 1\n"),
        ("prom", "# HELP a b\na 2 1\n"),
        ("openmetrics", "a 2 0.001\n# EOF\n"),
        ("csv", 'labels,ts_ms,value\n"{""__name__"": ""a""}",1,2\n'),
        ("csv", 'ts_ms,labels,value\n1,"{""__name__"": ""a""}",2\n'),
    ],
)
def test_a_byte_order_mark_before_the_first_line_is_no_part_of_a_name(form: Format, text: str) -> None:
    (found,) = read_rows(io.BytesIO(b"\xef\xbb\xbf" + text.encode()), "x", form, now_ms=0)
    assert [found.labels[code] for code in found.codes] == [canonical_labels({"__name__": "a"})]
    assert (found.ts_ms.tolist(), found.values.tolist()) == ([1], [2.0])


AT_MS = 1_767_225_600_123  # 2026-01-01T00:00:00.123Z
DAY_MS = 1_767_225_600_000
LABELS = '{"__name__": "a"}'


def parquet(ts_ms: pa.Array, labels: pa.Array | None = None, value: pa.Array | None = None) -> bytes:
    file = io.BytesIO()
    columns = {
        "labels": pa.array([LABELS] * len(ts_ms)) if labels is None else labels,
        "ts_ms": ts_ms,
        "value": pa.array([1.5] * len(ts_ms)) if value is None else value,
    }
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def stamp(unit: str, count: int, zone: str | None = None) -> pa.Array:
    return pa.array([count], pa.timestamp(unit, zone))


def pandas_file(frame: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    frame.to_parquet(file)
    return file.getvalue()


def frame(times: Any) -> pd.DataFrame:
    return pd.DataFrame({"labels": [LABELS] * len(times), "ts_ms": times, "value": [1.5] * len(times)})


TIMES: dict[str, tuple[bytes, int]] = {
    "ns": (parquet(stamp("ns", AT_MS * 1_000_000)), AT_MS),
    "us": (parquet(stamp("us", AT_MS * 1_000)), AT_MS),
    "ms": (parquet(stamp("ms", AT_MS)), AT_MS),
    "ns in a zone": (parquet(stamp("ns", AT_MS * 1_000_000, "Europe/Berlin")), AT_MS),
    "ns before 1970": (parquet(stamp("ns", -AT_MS * 1_000_000)), -AT_MS),
    "date32": (parquet(pa.array([DAY_MS // 86_400_000], pa.int32()).cast(pa.date32())), DAY_MS),
    "date64": (parquet(pa.array([DAY_MS], pa.date64())), DAY_MS),
    "float64": (parquet(pa.array([float(AT_MS)])), AT_MS),
    "uint64": (parquet(pa.array([AT_MS], pa.uint64())), AT_MS),
    "text": (parquet(pa.array(["2026-01-01T00:00:00.123Z"])), AT_MS),
    "text of ns": (parquet(pa.array(["2026-01-01 00:00:00.123000000"])), AT_MS),
    "large text": (parquet(pa.array(["2026-01-01T01:00:00.123+01:00"], pa.large_string())), AT_MS),
    "dictionary": (parquet(pa.array([str(AT_MS)]).dictionary_encode()), AT_MS),
    "pandas": (pandas_file(frame(pd.to_datetime([AT_MS], unit="ms"))), AT_MS),
    "pandas in a zone": (pandas_file(frame(pd.to_datetime([AT_MS], unit="ms", utc=True))), AT_MS),
}


@pytest.mark.parametrize("kind", TIMES)
def test_times_of_parquet_are_taken_to_the_millisecond(kind: str) -> None:
    data, ts_ms = TIMES[kind]
    (found,) = read_rows(io.BytesIO(data), "x", "parquet", now_ms=0)
    assert (found.ts_ms.tolist(), found.values.tolist()) == ([ts_ms], [1.5])
    assert list(found.labels) == [canonical_labels({"__name__": "a"})]


def csv(time: str) -> bytes:
    return f'labels,ts_ms,value\n"{{""__name__"":""a""}}",{time},1.5\n'.encode()


def jsonl(time: str) -> bytes:
    return f'{{"labels": {LABELS}, "ts_ms": {time}, "value": 1.5}}\n'.encode()


@pytest.mark.parametrize(
    ("form", "data", "ts_ms"),
    [
        ("csv", csv(f"{AT_MS}.0"), AT_MS),
        ("csv", csv("2026-01-01 00:00:00.123000"), AT_MS),
        ("csv", csv("2026-01-01"), DAY_MS),
        ("jsonl", jsonl(f"{AT_MS}.0"), AT_MS),
        ("jsonl", jsonl('"2026-01-01T00:00:00.123000000Z"'), AT_MS),
        ("jsonl", jsonl('"-1.0"'), -1),
    ],
)
def test_times_of_text_without_a_rest_are_taken_to_the_millisecond(form: Format, data: bytes, ts_ms: int) -> None:
    (found,) = read_rows(io.BytesIO(data), "x", form, now_ms=0)
    assert found.ts_ms.tolist() == [ts_ms]


@pytest.mark.parametrize(
    ("form", "data", "ts_ms"),
    [
        ("parquet", parquet(stamp("ns", AT_MS * 1_000_000 + 1)), AT_MS),
        ("parquet", parquet(stamp("us", AT_MS * 1_000 + 999, "UTC")), AT_MS),
        ("parquet", parquet(stamp("us", -1)), -1),
        ("parquet", parquet(pa.array([AT_MS + 0.5])), AT_MS),
        ("parquet", parquet(pa.array(["2026-01-01T00:00:00.1239Z"])), AT_MS),
        ("parquet", parquet(pa.array(["2026-01-01T00:00:00.123000001Z"])), AT_MS),
        ("csv", csv(f"{AT_MS}.5"), AT_MS),
        ("csv", csv("2026-01-01T00:00:00.123999Z"), AT_MS),
        ("csv", csv("1969-12-31T23:59:59.9999Z"), -1),
        ("jsonl", jsonl(f"{AT_MS}.25"), AT_MS),
        ("jsonl", jsonl("-0.5"), -1),
        ("jsonl", jsonl('"2026-01-01T00:00:00.123456Z"'), AT_MS),
    ],
    ids=range(12),
)
def test_a_rest_below_a_millisecond_is_refused_and_rounded_down_on_demand(
    form: Format, data: bytes, ts_ms: int
) -> None:
    with pytest.raises(InvalidRequest, match=r"x, (row|line) 1: ts_ms: .*finer than a millisecond.*--round-times"):
        list(read_rows(io.BytesIO(data), "x", form, now_ms=0))
    (found,) = read_rows(io.BytesIO(data), "x", form, now_ms=0, round_times=True)
    assert found.ts_ms.tolist() == [ts_ms]


@pytest.mark.parametrize(
    ("form", "data", "what"),
    [
        ("parquet", parquet(pa.array([1_767_225_600.5])), "looks like seconds"),
        ("parquet", parquet(pa.array([1_767_225_600])), "looks like seconds"),
        ("parquet", parquet(pa.array([AT_MS * 1_000])), "looks like microseconds"),
        ("parquet", parquet(pa.array([AT_MS * 1_000_000])), "looks like nanoseconds"),
        ("csv", csv("1767225600.5"), "looks like seconds"),
        ("csv", csv(f"{AT_MS}000"), "looks like microseconds"),
        ("csv", csv(f"{AT_MS}000000"), "looks like nanoseconds"),
        ("jsonl", jsonl("1767225600.25"), "looks like seconds"),
        ("jsonl", jsonl(f"{AT_MS}000"), "looks like microseconds"),
        ("jsonl", jsonl(f'"{AT_MS}000000"'), "looks like nanoseconds"),
        ("parquet", parquet(pa.array([True])), "bool"),
        ("parquet", parquet(pa.array([float("nan")])), "no time in ms"),
        ("parquet", parquet(pa.array([[1]])), "list"),
        ("parquet", parquet(pa.array([5], pa.time64("ns"))), "time64"),
    ],
    ids=range(14),
)
def test_a_time_in_another_unit_or_of_another_kind_is_refused_by_name(form: Format, data: bytes, what: str) -> None:
    def read() -> None:
        for rows in read_rows(io.BytesIO(data), "x", form, now_ms=0):
            rows.refuse_other_units("x", 0)

    with pytest.raises(InvalidRequest, match=what):
        read()


@pytest.mark.parametrize(
    "labels",
    [
        pa.array([LABELS]),
        pa.array([LABELS], pa.large_string()),
        pa.array([LABELS]).dictionary_encode(),
        pa.array([[("__name__", "a")]], pa.map_(pa.string(), pa.string())),
        pa.array([{"__name__": "a", "b": None}], pa.struct([("__name__", pa.string()), ("b", pa.string())])),
        pa.array([LABELS.encode()], pa.binary()),
    ],
    ids=range(6),
)
@pytest.mark.parametrize(
    "value", [pa.array([2.0], pa.float32()), pa.array([2], pa.int8()), pa.array([2], pa.uint64()), pa.array(["2"])]
)
def test_labels_and_values_of_parquet_may_be_of_any_fitting_type(labels: pa.Array, value: pa.Array) -> None:
    (found,) = read_rows(io.BytesIO(parquet(pa.array([AT_MS]), labels, value)), "x", "parquet", now_ms=0)
    assert [found.labels[code] for code in found.codes] == [canonical_labels({"__name__": "a"})]
    assert found.values.tolist() == [2.0]


def test_a_map_with_a_label_twice_or_without_a_value_is_refused() -> None:
    for pairs in ([("a", "1"), ("a", "2")], [("a", None)]):
        labels = pa.array([pairs], pa.map_(pa.string(), pa.string()))
        with pytest.raises(InvalidRequest, match="x, row 1"):
            list(read_rows(io.BytesIO(parquet(pa.array([AT_MS]), labels)), "x", "parquet", now_ms=0))
