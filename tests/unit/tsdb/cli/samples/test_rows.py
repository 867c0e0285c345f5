"""Rows keep their order, join over one list of labels, and group by series; malformed lines are refused."""

from __future__ import annotations

import io

import numpy as np
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
        ('{"labels": {"__name__": "a"}, "ts_ms": 1.5, "value": 1}', "ts_ms must be an integer"),
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
