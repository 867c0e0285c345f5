"""Files that `tsdb write` refuses, in each format."""

from __future__ import annotations

import io
import json
import time

import pyarrow as pa
import pyarrow.parquet as pq

from support.bad_inputs.rows import BadFile

NOW_MS = time.time_ns() // 1_000_000
NOW_S = NOW_MS // 1000
SECONDS = f"'{NOW_S}' looks like seconds; times are ms since the epoch: write {NOW_S}000 or "
DAY_MS = 86_400_000
UP = '{"__name__":"up"}'
IN_CSV = '"{""__name__"":""up""}"'


def _csv(rows: str, words: str) -> BadFile:
    return BadFile("bad.csv", f"labels,ts_ms,value\n{rows}\n".encode(), words)


def _json(text: str, words: str) -> BadFile:
    return BadFile("bad.jsonl", text.encode("utf-8", "surrogatepass"), words)


def _row(ts_ms: str, value: str, labels: str = UP) -> str:
    return f'{{"labels":{labels},"ts_ms":{ts_ms},"value":{value}}}'


def _prom(text: str, words: str) -> BadFile:
    return BadFile("bad.prom", text.encode() + b"\n", words)


def _parquet(words: str, **columns: object) -> BadFile:
    return BadFile("bad.parquet", _table(**columns), words)


def _table(**columns: object) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table({name: column for name, column in columns.items() if column is not None}), target)
    return target.getvalue()


def _sample(labels: dict[str, str], ts_ms: int, words: str) -> BadFile:
    row = json.dumps({"labels": labels, "ts_ms": ts_ms, "value": 1.0})
    return BadFile("samples.jsonl", row.encode(), words, refused=True)


WHOLE = _table(labels=[UP], ts_ms=[1], value=[1.0])

CSV = (
    BadFile("bad.csv", b"", "no column labels, ts_ms, value"),
    BadFile("bad.csv", b"\x00\x01\x02", "no column labels, ts_ms, value"),
    BadFile("bad.csv", b"PAR1\x15\x04\x15\xff\x00", "bad.csv is Parquet, not CSV: give --format parquet"),
    BadFile("bad.csv", b"when,room,v\n2026-01-01,a,1\n", "--time, --value, --metric and --labels name other columns"),
    BadFile("bad.csv", b"ts,v,v\n2026-01-01,1,1\n", "no column labels, ts_ms, value"),
    BadFile("bad.csv", b"labels,value\n{},1\n", "no column ts_ms; want labels, ts_ms, value"),
    BadFile("bad.csv", b'labels,ts_ms,value\n"\xff",1,2\n', "row 1: CSV conversion error to string: invalid UTF8"),
    _csv(f"{IN_CSV},soon,1", "bad.csv, row 1: ts_ms: 'soon' is neither ms since the epoch nor a time such as"),
    _csv(f"{IN_CSV},1,1\n{IN_CSV},1,much", "bad.csv, row 2: value: not a number: 'much'"),
    _csv(f"{IN_CSV},1,1\n{IN_CSV},1,", "bad.csv, row 2: value: not a number: ''"),
    _csv(f"{IN_CSV},,1", "bad.csv, row 1: ts_ms: ''"),
    _csv(f"{IN_CSV},1.5,1", "bad.csv, row 1: ts_ms: '1.5' is finer than a millisecond"),
    _csv(f"{IN_CSV},99999999999999999999,1", "bad.csv, row 1: ts_ms: '99999999999999999999'"),
    _csv(f"{IN_CSV},{NOW_S},1", f"bad.csv, sample 1: {SECONDS}"),
    _csv(f"{IN_CSV},1,1\nup,1,2", "bad.csv, row 2: labels are not JSON"),
    _csv('"{""a"":1}",1,2', "bad.csv, row 1: labels must be an object of strings"),
    _csv(f"{IN_CSV},1", "Expected 3 columns, got 2"),
    _csv(f"{IN_CSV},1,2,3", "Expected 3 columns, got 4"),
    _csv('"{""__name__"":""up""},1,2', "Expected 3 columns, got 1"),
)

JSON_LINES = (
    _json("{", "bad.jsonl, line 1: not JSON"),
    _json("\n[1]", "bad.jsonl, line 2: no labels, ts_ms, value; got '[1]'"),
    _json("null", "line 1: no labels, ts_ms, value; got 'null'"),
    _json('{"labels":{},"ts_ms":1}', "line 1: no value"),
    _json('{"labels":{},"ts_ms":1,"value":1,"extra":2}', "line 1: 'extra' is not known"),
    _json(_row("1", "1") * 2, "line 1: not JSON: Extra data"),
    _json("[" * 100_000, "line 1: not JSON: it is nested too deeply"),
    _json('{"labels":{"a":"' + "x" * (1 << 20) + '"}}', "line 1: longer than 1048576 bytes"),
    BadFile("bad.jsonl", b"\xff\xfe", "line 1: not UTF-8"),
    _json(_row("1", "1", '{"a":1}'), "line 1: labels must be an object of strings"),
    _json(_row("1", "1", "[]"), "labels must be an object of strings; got '[]'"),
    _json(_row("1", "1", "null"), "labels must be an object of strings; got 'null'"),
    _json(_row("1", "1", '{"a":"1","a":"2"}'), "key 'a' is given twice"),
    _json(_row("1", "1", '{"__name__":"\\ud800"}'), "bad.jsonl, line 1: label text is not valid UTF-8"),
    _json(_row("1.5", "1"), "line 1: ts_ms: '1.5' is finer than a millisecond"),
    _json(_row("true", "1"), "line 1: ts_ms must be an integer of 64 bits; got True"),
    _json(_row("9223372036854775807", "1"), "'9223372036854775807' looks like nanoseconds"),
    _json(_row("null", "1"), "line 1: ts_ms must be an integer of 64 bits; got None"),
    _json(_row("9223372036854775808", "1"), "line 1: ts_ms must be an integer of 64 bits"),
    _json(_row("9" * 5000, "1"), "line 1: not JSON"),
    _json(_row('"soon"', "1"), "line 1: ts_ms: 'soon' is neither ms since the epoch"),
    _json(f"{_row('1', '1')}\n{_row(str(NOW_S), '1')}", f"bad.jsonl, sample 2: {SECONDS}"),
    _json(_row("1", '"many"'), 'line 1: value must be a number, "NaN", "+Inf" or "-Inf"'),
    _json(_row("1", "true"), "line 1: value must be a number"),
    _json(_row("1", "null"), "line 1: value must be a number"),
    _json(_row("1", "NaN"), "NaN is no JSON: put it in quotes"),
    _json(_row("1", "1e400"), "line 1: value is beyond float64"),
    _json(_row("1", "9" * 400), "line 1: value is beyond float64"),
)

EXPOSITION = (
    _prom("up", "bad.prom, line 1: not a sample: 'up'"),
    _prom("up 1 2 3", "line 1: not a sample: 'up 1 2 3'"),
    _prom("# fine\nup one", "line 2: not a number: 'one'"),
    _prom("up 1 soon", "line 1: not a time in integer ms: 'soon'"),
    _prom("up 1 99999999999999999999", "line 1: not a time in integer ms"),
    _prom(f"up 1 {NOW_S}", f"bad.prom, sample 1: {SECONDS}"),
    _prom('up{job="x} 1', "line 1: not a sample"),
    _prom("up{a=b} 1", "line 1: not labels: '{a=b}'"),
    _prom('up{a="1",a="2"} 1', "line 1: not labels"),
    _prom('up{a="b" 1', "line 1: not a sample"),
    _prom("{} 1", "line 1: no metric name"),
    BadFile("bad.prom", b"up \xff\n", "bad.prom, line 1: not UTF-8"),
)

PARQUET = (
    BadFile("bad.parquet", b"", "bad.parquet: Parquet file size is 0 bytes"),
    BadFile("bad.parquet", b"PAR1 but not really", "bad.parquet: Parquet magic bytes not found"),
    BadFile("bad.parquet", WHOLE[:-20], "Parquet magic bytes not found in footer"),
    _parquet("no column ts_ms; want labels, ts_ms, value", labels=[UP], ts_ms=None, value=[1.0]),
    _parquet("row 1: ts_ms: 1.5 is finer than a millisecond", labels=[UP], ts_ms=[1.5], value=[1.0]),
    _parquet("ts_ms is bool; want timestamps, or ms since epoch UTC", labels=[UP], ts_ms=[True], value=[1.0]),
    _parquet("row 1: ts_ms: 'soon' is neither", labels=[UP], ts_ms=["soon"], value=[1.0]),
    _parquet("row 2: value: not a number: 'much'", labels=[UP, UP], ts_ms=[1, 1], value=["1", "much"]),
    _parquet("row 1: ts_ms: '9223372036854775808'", labels=[UP], ts_ms=pa.array([1 << 63], pa.uint64()), value=[1.0]),
    _parquet(f"sample 1: {SECONDS}", labels=[UP], ts_ms=[NOW_S], value=[1.0]),
    _parquet("row 1: labels must be an object of strings", labels=[1], ts_ms=[1], value=[1.0]),
    _parquet("row 2: no labels", labels=[UP, None], ts_ms=[1, 1], value=[1.0, 1.0]),
    _parquet("row 1: labels are not JSON", labels=["up"], ts_ms=[1], value=[1.0]),
    _parquet("column labels is list<", labels=[[UP]], ts_ms=[1], value=[1.0]),
)

# Whole files with samples that the gateway does not take.
SAMPLES = (
    _sample(
        {"__name__": "m"},
        NOW_MS - 6 * DAY_MS,
        "is 6.0 days old; the limit is 5 days; series m (too_old): `tsdb import` takes older",
    ),
    _sample({"__name__": "m"}, NOW_MS + DAY_MS, "ahead of now; limit is 300000 ms; series m (too_far_ahead)"),
    _sample({"__name__": "m"}, 1 << 45, "ahead of now; limit is 300000 ms; series m (too_far_ahead)"),
    _sample({"__name__": "m"}, -(1 << 62), "days old; the limit is 5 days; series m (too_old)"),
    _sample({}, NOW_MS, "label set is empty; __name__ is required (labels_empty)"),
    _sample({"job": "x"}, NOW_MS, "no __name__ label; series 'job|x' (labels_malformed)"),
    _sample({"__name__": "m", "": "x"}, NOW_MS, "an empty label name"),
    _sample({"__name__": "m", "x": "y" * 9000}, NOW_MS, "limit is 8192"),
    _sample({"__name__": "m", "n" * 2000: "v"}, NOW_MS, "label name of 2000 bytes; limit is 256"),
    _sample({"__name__": "m", **{f"l{n}": "v" for n in range(70)}}, NOW_MS, "71 labels; limit is 64"),
)

BAD_FILES = (*CSV, *JSON_LINES, *EXPOSITION, *PARQUET, *SAMPLES)
