"""Columns of any names become labels, times and values: as options say, else by a guess that is remarked."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tsdb.cli.samples.rows import SampleRows
from tsdb.cli.samples.source import Format, read_rows
from tsdb.model.errors import InvalidRequest
from tsdb.model.import_layout import ColumnNames, label_columns, metric_of
from tsdb.model.labels import parse_labels

AT = 1_767_225_600_000  # 2026-01-01
Sample = tuple[dict[str, str], int, float]


def samples(rows: SampleRows) -> list[Sample]:
    labels = [dict(parse_labels(rows.labels[code])) for code in rows.codes.tolist()]
    return list(zip(labels, rows.ts_ms.tolist(), rows.values.tolist(), strict=True))


def read(data: str | bytes, form: Format = "csv", name: str = "rooms.csv", **names: object) -> tuple[list[Sample], str]:
    """The samples and the remarks."""
    remarks: list[str] = []
    source = io.BytesIO(data if isinstance(data, bytes) else data.encode())
    columns = ColumnNames(**names)  # type: ignore[arg-type]  # each test gives fitting ones
    found = list(read_rows(source, name, form, now_ms=0, columns=columns, remark=remarks.append))
    return [sample for rows in found for sample in samples(rows)], "\n".join(remarks)


def test_the_columns_of_the_options_are_labels_time_and_value() -> None:
    text = "ts,v,host,room,note\n2026-01-01,1.5,a,7,x\n2026-01-01T00:00:01Z,2.5,b,8,y\n"
    _, labels = label_columns("host,room")
    found, _ = read(text, time="ts", value="v", label_columns=labels, constants=(("__name__", "temp"),))
    assert found == [
        ({"__name__": "temp", "host": "a", "room": "7"}, AT, 1.5),
        ({"__name__": "temp", "host": "b", "room": "8"}, AT + 1000, 2.5),
    ]


def test_a_plain_file_is_read_without_options_and_the_guess_is_remarked() -> None:
    found, remarks = read("time,host,temperature,humidity\n2026-01-01,a,1.5,40\n2026-01-02 12:00,b,,+Inf\n")
    assert sorted(found, key=str) == sorted(
        [
            ({"__name__": "temperature", "host": "a"}, AT, 1.5),
            ({"__name__": "humidity", "host": "a"}, AT, 40.0),
            ({"__name__": "humidity", "host": "b"}, AT + 36 * 3_600_000, float("inf")),
        ],
        key=str,
    )
    assert remarks == "rooms.csv: times time, metrics temperature, humidity, labels host"


@pytest.mark.parametrize(
    ("text", "name", "metric"),
    [
        ("ts,value\n1767225600,1\n", "rooms 2.csv", "rooms_2"),
        ("ts,degrees\n1767225600,1\n", "rooms.csv", "degrees"),
        ("ts,metric,value\n1767225600,cpu,1\n", "rooms.csv", "cpu"),
        ("ts,__name__,value\n1767225600,cpu,1\n", "-", "cpu"),
    ],
)
def test_the_metric_is_named_by_its_column_or_by_the_file(text: str, name: str, metric: str) -> None:
    found, _ = read(text, name=name)
    assert found == [({"__name__": metric}, AT, 1.0)]


@pytest.mark.parametrize(
    ("time", "unit"),
    [("1767225600", "s"), ("1767225600.0", "s"), (f"{AT}", "ms"), (f"{AT}000", "us"), (f"{AT}000000", "ns")],
)
def test_the_unit_of_times_is_that_of_the_first(time: str, unit: str) -> None:
    assert read(f"ts,degrees\n{time},1\n") == read(f"ts,degrees\n{time},1\n", time_unit=unit)
    assert read(f"ts,degrees\n{time},1\n")[0] == [({"__name__": "degrees"}, AT, 1.0)]


def test_seconds_with_a_fraction_are_exact_to_the_millisecond() -> None:
    found, _ = read("ts,degrees\n1767225600.123,1\n1767225600.999,2\n")
    assert [ts_ms for _, ts_ms, _ in found] == [AT + 123, AT + 999]
    with pytest.raises(InvalidRequest, match=r"row 1: ts: 1767225600\.1234 s is finer than a millisecond"):
        read("ts,degrees\n1767225600.1234,1\n")


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_semicolon_or_a_tab_may_separate(separator: str) -> None:
    assert read("ts,host,degrees\n2026-01-01,a,1\n".replace(",", separator)) == read(
        "ts,host,degrees\n2026-01-01,a,1\n"
    )


def test_an_empty_label_is_absent_and_labels_of_json_are_kept() -> None:
    text = 'ts,labels,host,value\n2026-01-01,"{""__name__"":""up""}",,1\n2026-01-01,"{""__name__"":""up""}",a,2\n'
    found, _ = read(text)
    assert found == [({"__name__": "up"}, AT, 1.0), ({"__name__": "up", "host": "a"}, AT, 2.0)]


def test_columns_of_parquet_keep_their_kind() -> None:
    table = pa.table(
        {
            "when": pa.array([AT * 1_000_000], pa.timestamp("ns")),
            "host": pa.array(["a"]).dictionary_encode(),
            "rack": pa.array([7]),
            "load": pa.array([0.5], pa.float32()),
            "free": pa.array([None], pa.int64()),
        }
    )
    target = io.BytesIO()
    pq.write_table(table, target)
    _, labels = label_columns("host,rack")
    found, _ = read(target.getvalue(), "parquet", "x.parquet", time="when", label_columns=labels)
    assert found == [({"__name__": "load", "host": "a", "rack": "7"}, AT, 0.5)]


def test_blocks_after_the_first_have_its_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsdb.cli.samples.arrow.CSV_BLOCK_BYTES", 64)
    rows = [f"{1767225600 + n},host{n % 3},{n}" for n in range(50)]
    found, _ = read("\n".join(["ts,host,degrees", *rows]))
    assert [(labels["host"], ts_ms, value) for labels, ts_ms, value in found] == [
        (f"host{n % 3}", AT + n * 1000, float(n)) for n in range(50)
    ]
    with pytest.raises(InvalidRequest, match=r"rooms\.csv, row 51: degrees: not a number: 'hot'"):
        read("\n".join(["ts,host,degrees", *rows, "1767225700,a,hot"]))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("when,host,degrees\n2026-01-01,a,1\n", "no column labels, ts_ms, value; want labels, ts_ms"),
        ("when,host,degrees\n2026-01-01,a,1\n", "a time is known by ts, time, timestamp, datetime or date"),
        ("ts,host\n2026-01-01,a\n", "no column labels, ts_ms, value"),
        ("ts,a,a\n2026-01-01,1,2\n", "no column labels"),
        ("ts,host,degrees\nsoon,a,1\n", "row 1: ts: 'soon' is neither ms since the epoch nor a time such as"),
    ],
)  # fmt: skip
def test_a_file_without_a_plain_layout_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(text)
    assert words in caught.value.message


def test_a_value_column_of_stdin_needs_a_name() -> None:
    with pytest.raises(InvalidRequest, match="nothing names the metric: give --name METRIC"):
        read("ts,value\n2026-01-01,1\n", name="-")


def test_a_column_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidRequest, match="no column at; it has 'ts, degrees'"):
        read("ts,degrees\n2026-01-01,1\n", time="at")


def test_a_metric_is_remarked_as_a_query_selects_it() -> None:
    found, remarks = read("ts,Temp (C),a:b\n1767225600,1.5,2\n")
    assert {labels["__name__"] for labels, _, _ in found} == {"Temp (C)", "a:b"}
    assert remarks == 'rooms.csv: times ts, metrics {"Temp (C)"}, a:b'


def test_names_of_files_become_names_of_metrics() -> None:
    assert [metric_of(text) for text in ("a-b.c", "2nd floor", "--", "ok:x")] == ["a_b_c", "_2nd_floor", "", "ok:x"]
