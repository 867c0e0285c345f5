"""`tsdb write` sends every sample of every format, bit for bit and in the order of time, and prints the counts."""

from __future__ import annotations

import contextlib
import io
import json
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.cli import Shell
from support.fakes.fake_reader import FakeServer
from tsdb.cli.samples.source import Format, read_rows
from tsdb.model.errors import InvalidRequest, Unavailable
from tsdb.model.labels import canonical_labels
from tsdb.v1 import ingest_pb2

A, B = {"__name__": "a", "job": "j"}, {"__name__": "b", "job": "j"}
ROWS = [(A, 3000, 1.5), (B, 1000, -0.0), (A, 1000, float("nan")), (B, 2000, float("inf")), (A, 2000, float("-inf"))]
LABELS = '"{""__name__"":""a""}"'  # The labels of A as a field of CSV.
BITS = {
    canonical_labels(A): [(1000, float("nan")), (2000, float("-inf")), (3000, 1.5)],
    canonical_labels(B): [(1000, -0.0), (2000, float("inf"))],
}


def table(rows: list[tuple[dict[str, str], int, float]] = ROWS) -> pa.Table:
    # Two spellings of the same labels, as two writers of a file would give.
    texts = [json.dumps(dict(sorted(labels.items(), reverse=bool(n % 2)))) for n, (labels, _, _) in enumerate(rows)]
    return pa.table(
        {"labels": texts, "ts_ms": [row[1] for row in rows], "value": pa.array([row[2] for row in rows], pa.float64())}
    )


def parquet(**columns: list[object]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def spelled(value: float) -> str:
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(str(value), repr(value))


def make_file(folder: Path, form: str) -> Path:
    path = folder / f"samples.{form}"
    if form == "parquet":
        pq.write_table(table(), path)
    elif form == "csv":
        lines = ["ts_ms,labels,extra,value"]
        lines += [f'{ts},"{json.dumps(labels).replace(chr(34), chr(34) * 2)}",x,{spelled(v)}' for labels, ts, v in ROWS]
        path.write_text("\n".join(lines) + "\n")
    elif form == "jsonl":
        values = [v if np.isfinite(v) else spelled(v) for _, _, v in ROWS]
        rows = [{"labels": r[0], "ts_ms": r[1], "value": value} for r, value in zip(ROWS, values, strict=True)]
        path.write_text("\n\n".join(map(json.dumps, rows)))
    else:
        lines = ["# HELP a help", "# TYPE a counter", ""]
        lines += [f'{labels["__name__"]}{{job="j"}} {spelled(value)} {ts}' for labels, ts, value in ROWS]
        path.write_text("\n".join(lines))
    return path


def bits(samples: dict[bytes, list[tuple[int, float]]]) -> dict[bytes, list[tuple[int, bytes]]]:
    return {
        labels: [(ts, struct.pack("d", value) if value == value else b"nan") for ts, value in rows]
        for labels, rows in samples.items()
    }


class Watched(io.BytesIO):
    """A file that records the threads reading it."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.threads: set[str] = set()

    def read(self, size: int | None = -1, /) -> bytes:
        self.threads.add(threading.current_thread().name)
        return super().read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        self.threads.add(threading.current_thread().name)
        return super().readline(size)


class Piped(io.BytesIO):
    """A pipe: its end cannot be read first."""

    def seekable(self) -> bool:
        return False


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "prom"])
@pytest.mark.parametrize("piped", [False, True])
def test_every_format_is_written_whole(
    shell: Shell, server: FakeServer, tmp_path: Path, form: str, piped: bool
) -> None:
    path = make_file(tmp_path, form)
    source = ("-", "--format", form) if piped else (path,)
    done = shell.ok("write", *source, "--address", server.address, "--output", "json", stdin=path.read_bytes())
    summary = done.json
    assert isinstance(summary.pop("seconds"), float)
    assert summary == {"samples": 5, "series": 2, "requests": 1, "refused": 0}
    assert bits(server.samples) == bits(BITS)


def test_the_payload_of_a_nan_survives_parquet(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    stale = np.array([0x7FF0000000000002], np.uint64)
    labels = pa.array(['{"__name__":"a"}']).dictionary_encode()
    pq.write_table(pa.table({"labels": labels, "ts_ms": [1], "value": stale.view(np.float64)}), tmp_path / "x.parquet")
    shell.ok("write", tmp_path / "x.parquet", "--address", server.address)
    [request] = server.received(ingest_pb2.WriteRequest)
    assert request.values == stale.tobytes()


def test_large_files_go_in_several_requests_newest_last(
    shell: Shell, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tsdb.cli.samples.upload.REQUEST_ROWS", 2)
    shell.ok("write", make_file(tmp_path, "parquet"), "--address", server.address)
    times = [np.frombuffer(r.ts_ms, "<i8").tolist() for r in server.received(ingest_pb2.WriteRequest)]
    assert times == [[1000, 1000], [2000, 2000], [3000]]


def test_text_is_sent_batch_by_batch(
    shell: Shell, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tsdb.cli.samples.text.BATCH_ROWS", 2)
    summary = shell.ok("write", make_file(tmp_path, "jsonl"), "--address", server.address, "--output", "json").json
    assert (summary["samples"], summary["series"], summary["requests"]) == (5, 2, 3)
    times = [np.frombuffer(r.ts_ms, "<i8").tolist() for r in server.received(ingest_pb2.WriteRequest)]
    assert [sorted(part) for part in times] == [[1000, 3000], [1000, 2000], [2000]]


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_shift_to_now_moves_all_by_one_constant(shell: Shell, server: FakeServer, tmp_path: Path, form: str) -> None:
    before = time.time_ns() // 1_000_000
    path = make_file(tmp_path, form)
    summary = shell.ok("write", path, "--address", server.address, "--shift-to-now", "--output", "json").json
    shift_ms = summary["shift_ms"]
    assert before <= 3000 + shift_ms <= time.time_ns() // 1_000_000
    want = {labels: [(ts + shift_ms, value) for ts, value in rows] for labels, rows in BITS.items()}
    assert bits(server.samples) == bits(want)


def test_as_live_begins_now_and_divides_time_by_speed(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    before = time.time_ns() // 1_000_000
    path = make_file(tmp_path, "parquet")
    summary = shell.ok("write", path, "--address", server.address, "--as-live", "--speed", "7", "--output", "json").json
    base_ms = summary["base_ms"]
    assert before <= base_ms <= time.time_ns() // 1_000_000
    assert summary["speed"] == 7
    want = {labels: [(base_ms + (ts - 1000) // 7, value) for ts, value in rows] for labels, rows in BITS.items()}
    assert bits(server.samples) == bits(want)
    assert time.time_ns() // 1_000_000 >= base_ms + 2000 // 7
    assert summary["requests"] > 1


def test_samples_that_fall_on_one_millisecond_are_all_sent_in_order(
    shell: Shell, server: FakeServer, tmp_path: Path
) -> None:
    pq.write_table(table([(A, 1000, 1.0), (A, 1001, 2.0), (A, 1002, 3.0)]), tmp_path / "x.parquet")
    summary = shell.ok(
        "write", tmp_path / "x.parquet", "--address", server.address, "--as-live", "--speed", 1000, "--output", "json"
    ).json
    base_ms = summary["base_ms"]
    assert server.samples[canonical_labels(A)] == [(base_ms, 1.0), (base_ms, 2.0), (base_ms, 3.0)]


def test_an_empty_file_writes_nothing(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("\n")
    for how in ((), ("--shift-to-now",), ("--as-live",)):
        summary = shell.ok("write", tmp_path / "x.jsonl", "--address", server.address, *how, "--output", "json").json
        assert (summary["samples"], summary["requests"]) == (0, 0)


def test_refused_samples_are_counted_named_and_a_failure(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    server.refuse = lambda labels: "ts 1 is too old" if labels == canonical_labels(B) else ""
    path = make_file(tmp_path, "parquet")
    done = shell.run("write", path, "--address", server.address, "--output", "json")
    assert done.code == 1
    assert (done.json["samples"], done.json["refused"]) == (3, 2)
    assert "refused: ts 1 is too old (too_old): `tsdb import` takes older samples" in done.err


def test_an_error_says_what_was_sent_before_it(
    shell: Shell, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tsdb.cli.samples.upload.REQUEST_ROWS", 2)
    monkeypatch.setattr("tsdb.cli.samples.text.BATCH_ROWS", 2)
    path = make_file(tmp_path, "jsonl")
    path.write_text(path.read_text() + "\n{")
    done = shell.run("write", path, "--address", server.address)
    assert (done.code, done.out) == (1, b"")
    sent, error = done.err.splitlines()
    assert sent.startswith('sent before the error: {"samples":4,')
    assert error.startswith(f"error: {path}, line 10: not JSON")


@pytest.mark.parametrize(
    "bad", ["1", "1,2,3,4", "up,1,1", '"{""a"":""b""}",1,much', '"{""a"":""b""}",soon,1', "\udcff,1,1"]
)
def test_a_row_is_counted_from_the_start_of_the_file(
    shell: Shell, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    monkeypatch.setattr("tsdb.cli.samples.arrow.CSV_BLOCK_BYTES", 100)
    rows = [f"{LABELS},1,1.5"] * 20
    path = tmp_path / "x.csv"
    path.write_bytes("\n".join(["labels,ts_ms,value", *rows, bad]).encode(errors="surrogateescape"))
    done = shell.run("write", path, "--address", server.address)
    assert done.code == 1
    assert "row 21" in done.err.splitlines()[-1]


def test_an_error_before_anything_was_sent_is_one_line(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    server.fail = [InvalidRequest("no such thing", reason="labels_malformed")]
    done = shell.run("write", make_file(tmp_path, "parquet"), "--address", server.address)
    assert (done.code, done.out, done.err) == (1, b"", "error: no such thing (labels_malformed)\n")


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_times_in_files_may_be_iso_8601(shell: Shell, server: FakeServer, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    times = ["2026-01-01T00:00:00Z", "2026-01-01T01:00:01+01:00", "1767225602000"]
    if form == "csv":
        rows = [f'"{{""__name__"":""a""}}",{ts},1.5' for ts in times]
        path.write_text("\n".join(["labels,ts_ms,value", *rows]))
    elif form == "jsonl":
        path.write_text("\n".join(json.dumps({"labels": {"__name__": "a"}, "ts_ms": ts, "value": 1.5}) for ts in times))
    else:
        pq.write_table(pa.table({"labels": ['{"__name__":"a"}'] * 3, "ts_ms": times, "value": [1.5] * 3}), path)
    shell.ok("write", path, "--address", server.address)
    [samples] = server.samples.values()
    assert [ts_ms for ts_ms, _ in samples] == [1767225600000, 1767225601000, 1767225602000]


def test_an_outage_within_the_timeout_is_waited_for(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    server.fail = [Unavailable("log away"), Unavailable("log away")]
    shell.ok("write", make_file(tmp_path, "parquet"), "--address", server.address)
    assert bits(server.samples) == bits(BITS)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("x.dat",), "give --format"),
        (("x.jsonl", "--speed", "2"), "--speed goes with --as-live"),
        (("x.jsonl", "--as-live", "--shift-to-now"), "--as-live or --shift-to-now"),
        (("x.jsonl", "--as-live", "--speed", "0"), "must be above 0"),
        (("absent.jsonl",), "does not exist"),
        (("x.jsonl", "--format", "xml"), "xml"),
        (("x.jsonl", "--output", "csv"), "csv"),
    ],
)
def test_a_misuse_is_exit_code_2(
    shell: Shell, server: FakeServer, tmp_path: Path, arguments: tuple[str, ...], what: str
) -> None:
    for name in ("x.dat", "x.jsonl"):
        (tmp_path / name).write_text("")
    done = shell.run("write", tmp_path / arguments[0], *arguments[1:], "--address", server.address)
    assert done.code == 2
    assert what in " ".join(done.err.split())
    assert server.requests == []


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("x.parquet", b"PAR1 but not really", "x.parquet"),
        ("x.parquet", parquet(a=[1]), "no column labels, ts_ms, value; want labels, ts_ms, value, got 'a'"),
        ("x.parquet", parquet(labels=["{}"], value=[1.0]), "no column ts_ms"),
        ("x.parquet", parquet(labels=[1], ts_ms=[1], value=[1.0]), "labels must be an object"),
        ("x.parquet", parquet(labels=[["{}"]], ts_ms=[1], value=[1.0]), "column labels"),
        ("x.parquet", parquet(labels=["{}"], ts_ms=["soon"], value=[1.0]), "row 1: ts_ms: 'soon'"),
        ("x.parquet", parquet(labels=["{}"], ts_ms=[1], value=[[1.0]]), "row 1: value: not a number"),
        ("x.parquet", b"", "x.parquet"),
        ("x.csv", b"", "no column labels"),
        ("x.csv", b"labels,value\n{},1\n", "no column ts_ms"),
        ("x.csv", b"\xff\xfe,\x00\n1,2\n", "no column labels"),
        ("x.csv", b'labels,ts_ms,value\n"{}",1\n', "x.csv"),
        ("x.csv", b'labels,ts_ms,value\n"{}",soon,1\n', "soon"),
        ("x.csv", b'labels,ts_ms,value\n"{}",1,much\n', "much"),
        ("x.csv", b"labels,ts_ms,value\nup,1,2\n", "--label LABEL=COLUMN takes a column for one label"),
        ("x.csv", b'labels,ts_ms,value\n"{""a"":1}",1,2\n', "object of strings"),
        ("x.jsonl", b'{"labels":{},"ts_ms":1}', "line 1: no value"),
        ("x.jsonl", b"\n[1]", "line 2: no labels, ts_ms, value"),
        ("x.jsonl", b"{", "line 1: not JSON"),
        ("x.jsonl", b'{"labels":{"a":1},"ts_ms":1,"value":1}', "object of strings"),
        ("x.jsonl", b'{"labels":{"a":["b"]},"ts_ms":1,"value":1}', "object of strings"),
        ("x.jsonl", b'{"labels":{},"ts_ms":1.5,"value":1}', "finer than a millisecond"),
        ("x.jsonl", b'{"labels":{},"ts_ms":9223372036854775808,"value":1}', "64 bits"),
        ("x.jsonl", b'{"labels":{},"ts_ms":1,"value":"many"}', "value must be a number"),
        ("x.jsonl", b'{"labels":{},"ts_ms":1,"value":true}', "value must be a number"),
        ("x.jsonl", b'{"labels":{},"ts_ms":1,"value":' + b"9" * 400 + b"}", "beyond float64"),
        ("x.jsonl", b"\xff\xfe", "not UTF-8"),
        ("x.prom", b"up 1 2 3", "line 1: not a sample"),
        ("x.prom", b"# fine\nup one", "line 2: not a number: 'one'"),
        ("x.prom", b'up{job="x} 1', "line 1: not a sample"),
        ("x.prom", b'up{1="x"} 1', "line 1: not labels"),
        ("x.prom", b"up 1" + b" " * (64 << 10), "line 1: longer than 65536 bytes"),
        ("x.prom", b"up 1\n# EOF\ndown 1\n# EOF", "line 3: a line after # EOF"),
        ("x.prom", b"up 1 1.5", "line 1: not a time in integer ms"),
        ("x.openmetrics", b"up 1 soon\n# EOF\n", "line 1: not a time in seconds"),
        ("x.openmetrics", b"up 1\n", "cut short"),
        ("x.prom", b"{} 1", "no metric name"),
    ],
)
def test_bad_input_is_one_line_naming_the_place(
    shell: Shell, server: FakeServer, tmp_path: Path, name: str, content: bytes, what: str
) -> None:
    (tmp_path / name).write_bytes(content)
    done = shell.run("write", tmp_path / name, "--address", server.address)
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith("error: ")
    assert what in last
    assert name in last
    assert "Traceback" not in done.err
    assert server.requests == []


def test_an_exemplar_is_counted_and_its_sample_written(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "x.prom").write_text('a{x="1"} 3 1000 # {t="a"} 0.5\na 4 1000\n')
    done = shell.ok("write", tmp_path / "x.prom", "--address", server.address)
    assert server.samples == {
        canonical_labels({"__name__": "a", "x": "1"}): [(1000, 3.0)],
        canonical_labels({"__name__": "a"}): [(1000, 4.0)],
    }
    assert "x.prom: 1 exemplars are not kept" in done.err


@pytest.mark.parametrize("name", ["x.prom", "x.openmetrics"])
def test_times_of_openmetrics_are_taken_for_seconds(
    shell: Shell, server: FakeServer, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("a 3 1.5\n# EOF\n")
    shell.ok("write", tmp_path / name, "--address", server.address)
    assert server.samples == {canonical_labels({"__name__": "a"}): [(1500, 3.0)]}


def test_piped_openmetrics_with_times_asks_for_its_format() -> None:
    page = b"a 3 1700000000\n# EOF\n"
    with pytest.raises(InvalidRequest, match=r"line 2: .* times are in seconds: give --format openmetrics"):
        list(read_rows(Piped(page), "x", "prom", now_ms=0))
    [rows] = read_rows(Piped(page), "x", "openmetrics", now_ms=0)
    assert rows.ts_ms.tolist() == [1700000000000]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_files_are_read_by_the_calling_thread_alone(tmp_path: Path, form: Format) -> None:
    """A thread of Arrow that asks Python for bytes while the interpreter ends aborts the process (exit code 134)."""
    content = b"a,b\n" + b"1,2\n" * 6_000_000 if form == "csv" else make_file(tmp_path, form).read_bytes()
    source = Watched(content)
    with contextlib.suppress(InvalidRequest):
        list(read_rows(source, "x", form, now_ms=0))
    assert source.threads == {threading.current_thread().name}
