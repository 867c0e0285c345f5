"""`tsdb query --raw` gives the same samples in every form, and refuses contradicting options."""

from __future__ import annotations

import io
import json
import math
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from support.cli import Shell
from support.fakes.fake_reader import FakeServer
from tsdb.cli.samples.source import read_rows
from tsdb.model.errors import HoleInRange, OutOfCoverage
from tsdb.model.labels import canonical_labels
from tsdb.v1 import reader_pb2

UP = canonical_labels({"__name__": "up", "job": "a"})
RANGE = ("--start", "0", "--end", "100000")


@pytest.fixture(autouse=True)
def samples(server: FakeServer) -> None:
    odd = np.array([0x7FF0000000000002], np.uint64).view(np.float64)[0]
    values = (1.0, 0.1 + 0.2, -0.0, math.inf, -math.inf, odd)
    server.samples[UP] = [(1000 * second, value) for second, value in enumerate(values, start=1)]
    server.samples[canonical_labels({"__name__": "down", "path": '/a"b,c'})] = [(1000, 5e-324)]


def asked(server: FakeServer) -> reader_pb2.SelectRequest:
    request = server.received(reader_pb2.SelectRequest)[-1]
    assert isinstance(request, reader_pb2.SelectRequest)
    return request


def shown(server: FakeServer) -> dict[bytes, list[tuple[int, str]]]:
    return {labels: [(ts, repr(float(value))) for ts, value in rows] for labels, rows in server.samples.items()}


@pytest.mark.parametrize("to_file", [False, True])
def test_parquet_has_labels_times_and_values_bit_for_bit(
    shell: Shell, server: FakeServer, tmp_path: Path, to_file: bool
) -> None:
    out = ("--out", tmp_path / "x.parquet") if to_file else ()
    done = shell.ok("query", "--raw", "up", "--address", server.address, *RANGE, "--output", "parquet", *out)
    data = (tmp_path / "x.parquet").read_bytes() if to_file else done.out
    table = pq.read_table(io.BytesIO(data))
    assert table.column_names == ["labels", "ts_ms", "value"]
    assert set(table["labels"].to_pylist()) == {'{"__name__":"up","job":"a"}'}
    assert table["ts_ms"].to_pylist() == [1000, 2000, 3000, 4000, 5000, 6000]
    want = np.array([value for _, value in server.samples[UP]]).view(np.int64)
    assert (table["value"].to_numpy().view(np.int64) == want).all()
    assert list(tmp_path.iterdir()) == ([tmp_path / "x.parquet"] if to_file else [])
    assert not (to_file and done.out)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_what_query_prints_write_reads_back(shell: Shell, server: FakeServer, form: str) -> None:
    query = ("query", "--raw", '{__name__=~".+"}', "--address", server.address, *RANGE, "--output", form)
    printed = shell.ok(*query).out
    before = shown(server)
    server.samples.clear()
    shell.ok("write", "-", "--format", form, "--address", server.address, stdin=printed)
    assert shown(server) == before


def test_json_is_one_line_with_special_values_as_text(shell: Shell, server: FakeServer) -> None:
    done = shell.ok("query", "--raw", "up", "--address", server.address, *RANGE, "--output", "json")
    assert done.text.count("\n") == 1
    assert done.json["series"] == [
        {
            "labels": {"__name__": "up", "job": "a"},
            "ts_ms": [1000, 2000, 3000, 4000, 5000, 6000],
            "values": [1.0, 0.30000000000000004, -0.0, "+Inf", "-Inf", "NaN"],
        }
    ]
    assert done.json["samples"] == 6
    assert done.json["partitions"][0]["coverage_start_ms"] == 1000
    assert done.json["partitions"][0]["watermark_ms"] is None


def test_an_empty_answer_is_empty_in_every_form(shell: Shell, server: FakeServer) -> None:
    query = ("query", "--raw", "absent", "--address", server.address, *RANGE, "--output")
    assert shell.ok(*query, "json").json["series"] == []
    assert shell.ok(*query, "csv").text.strip() == '"labels","ts_ms","value"'
    assert pq.read_table(io.BytesIO(shell.ok(*query, "parquet").out)).num_rows == 0
    assert "0 series" in shell.ok(*query, "table").err


def test_the_table_has_a_line_a_series_with_its_course(shell: Shell, server: FakeServer) -> None:
    server.samples[UP] = [(second * 1000, float(second)) for second in range(24)]
    done = shell.ok("query", "--raw", '{__name__=~".+"}', "--address", server.address, *RANGE)
    header, down, up = done.text.splitlines()
    assert header.split() == ["series", "samples", "first", "last", "min", "max", "spark"]
    assert down.startswith('down{path="/a\\"b,c"}')
    assert up.split()[:6] == ['up{job="a"}', "24", "0", "23", "0", "23"]
    assert up.split()[6] == "▁▁▁▂▂▂▃▃▃▄▄▄▅▅▅▆▆▆▇▇▇███"
    assert "2 series, 25 samples, 1970-01-01T00:00:00.000Z" in done.err


def test_a_long_table_is_cut_and_says_so(shell: Shell, server: FakeServer) -> None:
    done = shell.ok("query", "--raw", '{__name__=~".+"}', "--address", server.address, *RANGE, "--rows", "1")
    assert len(done.text.splitlines()) == 2
    assert "1 series not shown" in done.err


def test_what_is_asked_reaches_the_server(shell: Shell, server: FakeServer) -> None:
    options = ("--step", "1m", "--agg", "avg", "--allow-stale", "--allow-holes", "--last-n", "0")
    shell.ok("query", "--raw", "up", "--address", server.address, *RANGE, *options)
    request = asked(server)
    assert (request.start_ms, request.end_ms) == (0, 100000)
    assert (request.step_ms, request.aggregation) == (60000, reader_pb2.AVG)
    assert (request.options.allow_stale, request.options.allow_holes) == (True, True)
    shell.ok("query", "--raw", "up", "--address", server.address, *RANGE, "--max-lag", "1500ms")
    assert asked(server).options.max_lag_ms == 1500
    shell.ok("query", "--raw", "up", "--address", server.address, "--last", "10m", "--encoding", "columns")
    request = asked(server)
    assert (request.end_ms - request.start_ms, request.encoding) == (600_001, reader_pb2.COLUMNS)
    shell.ok("query", "--raw", "up", "--address", server.address, "--last-n", "3")
    assert asked(server).last_n == 3


def test_times_may_be_iso_8601(shell: Shell, server: FakeServer) -> None:
    times = ("--start", "2026-01-01", "--end", "2026-01-01T01:00:00.5+01:00")
    shell.ok("query", "--raw", "up", "--address", server.address, *times)
    assert (asked(server).start_ms, asked(server).end_ms) == (1767225600000, 1767225600500)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("rate(up[5m])", "--last", "5m"), "`tsdb query` without --raw evaluates PromQL"),
        (('up{a="("} / 2', "--last", "5m"), "'up{a=\"(\"} / 2' is more than a selector"),
        (("sum by (job) (up)", "--last", "5m"), "give a selector such as"),
        (("up{", "--last", "5m"), "1:4: parse error: unexpected end of input inside braces"),
        (("up", "--start", "1700000000"), "looks like seconds"),
        (("up", "--start", "1700000000.5"), "write 1700000000500 or 2023-11-14T22:13:20.500Z"),
        (("up", "--end", "1700000000000000"), "looks like microseconds"),
        (("up", "--end", "1700000000000000000"), "looks like nanoseconds"),
        (("up", "--last-n", "3", "--step", "1m", "--agg", "avg"), "--last-n or --step"),
        (("up", "--last-n", "3", "--encoding", "columns"), "--encoding columns goes without --step and --last-n"),
        (("up", "--start", "2", "--end", "2"), "--start 2 is not before --end 2"),
        (("up", "--start", "2", "--end", "1"), "not before"),
        (("up", "--last", "5m", "--end", "1"), "--last, or --start and --end"),
        (("up", "--last", "soon"), "'soon' is not a duration"),
        (("up", "--last", "0"), "from 1 ms"),
        (("up", "--start", "tomorrow", "--end", "1"), "'tomorrow' is neither"),
        (("", "--last", "5m"), "a metric name"),
        (("up", "--last", "5m", "--step", "60"), "--step and --agg go together"),
        (("up", "--last", "5m", "--step", "60", "--agg", "median"), "median"),
        (("up", "--last", "5m", "--out", "x"), "a file is json, csv or parquet"),
        (("up", "--last", "5m", "--encoding", "zip"), "zip"),
        (("up", "--at", "now"), "--at goes without --raw"),
        (("up", "--lookback", "1m"), "--lookback goes without --raw"),
        (("up", "--last", "5m", "--timeout", "-1"), "not a duration"),
        (("up", "--last", "5m", "--address", "nowhere"), "HOST:PORT"),
    ],
)
def test_a_misuse_is_exit_code_2_and_asks_nothing(
    shell: Shell, server: FakeServer, arguments: tuple[str, ...], what: str
) -> None:
    done = shell.run("query", "--raw", *arguments, *(() if "--address" in arguments else ("--address", server.address)))
    assert (done.code, done.out) == (2, b"")
    assert what in " ".join(done.err.replace("│", " ").split())
    assert server.requests == []


def test_the_range_is_the_last_hour_unless_given(shell: Shell, server: FakeServer) -> None:
    shell.ok("query", "--raw", "up", "--address", server.address)
    now_ms = time.time_ns() // 1_000_000
    assert asked(server).end_ms - asked(server).start_ms == 3_600_000
    assert now_ms - 60_000 < asked(server).end_ms <= now_ms + 1
    shell.ok("query", "--raw", "up", "--address", server.address, "--end", "9000000")
    assert (asked(server).start_ms, asked(server).end_ms) == (5_400_000, 9_000_000)
    shell.ok("query", "--raw", "up", "--address", server.address, "--start", "5")
    assert (asked(server).start_ms, asked(server).end_ms > now_ms - 60_000) == (5, True)


def test_a_refusal_speaks_of_options_not_of_fields(shell: Shell, server: FakeServer) -> None:
    server.fail = [HoleInRange("record_offset 7; allow_holes answers without them")]
    done = shell.run("query", "--raw", "up", "--address", server.address, *RANGE)
    assert done.err == "error: record offset 7; --allow-holes answers without them (hole)\n"


def test_a_refusal_of_the_server_is_one_line_and_exit_code_1(shell: Shell, server: FakeServer) -> None:
    server.fail = [OutOfCoverage("start 0 is before coverage 5000\nof partition 0", reason="before_coverage")]
    done = shell.run("query", "--raw", "up", "--address", server.address, *RANGE)
    assert (done.code, done.out) == (1, b"")
    assert done.err == "error: start 0 is before coverage 5000 of partition 0 (before_coverage)\n"


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_the_name_of_the_file_decides_the_format(shell: Shell, server: FakeServer, tmp_path: Path, form: str) -> None:
    named, given = tmp_path / f"x.{form}", tmp_path / "given"
    query = ("query", "--raw", "up", "--address", server.address, *RANGE)
    shell.ok(*query, "-o", named)
    shell.ok(*query, "--output", form, "-o", given)
    assert named.read_bytes() == given.read_bytes() != b""


def test_a_given_format_is_stronger_than_the_name_of_the_file(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    shell.ok("query", "--raw", "up", "--address", server.address, *RANGE, "--output", "json", "-o", tmp_path / "x.csv")
    assert json.loads((tmp_path / "x.csv").read_text())["samples"] == 6


def test_a_failed_query_leaves_no_file(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    server.fail = [HoleInRange("a hole")]
    out = ("--output", "csv", "--out", tmp_path / "x.csv")
    assert shell.run("query", "--raw", "up", "--address", server.address, *RANGE, *out).code == 1
    assert (
        shell.run("query", "--raw", "up", "--address", server.address, *RANGE, "--output", "csv", "-o", tmp_path).code
        == 2
    )
    assert list(tmp_path.iterdir()) == []


def test_nobody_listening_is_exit_code_1(shell: Shell, server: FakeServer) -> None:
    server.__exit__(None, None, None)
    done = shell.run("query", "--raw", "up", "--address", server.address, *RANGE, "--timeout", "2s")
    assert done.code == 1
    remark, failure = done.err.splitlines()
    assert remark.endswith("; tried again for up to 2s")
    assert failure.startswith("error: ")
    assert "(unreachable)" in failure


def test_the_token_comes_from_file_or_environment_only(
    shell: Shell, server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = ("query", "--raw", "up", "--address", server.address, *RANGE, "--output", "json")
    monkeypatch.setenv("TSDB_TOKEN", "from-environment,older")
    shell.ok(*query)
    (tmp_path / "token").write_text("# rotated in May\nfrom-file\nolder\n")
    shell.ok(*query, "--token-file", tmp_path / "token")
    assert [m["authorization"] for m in server.metadata] == ["Bearer from-environment", "Bearer from-file"]
    assert shell.run(*query, "--token", "s3cret").code == 2
    assert shell.run(*query, "--token-file", tmp_path / "absent").code == 1


def test_tls_files_that_do_not_work_are_named(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    done = shell.run("query", "--raw", "up", "--address", server.address, *RANGE, "--tls-ca", tmp_path / "ca.pem")
    assert done.code == 1
    assert "ca.pem" in done.err
    assert json.dumps(done.text) == '""'


def test_a_wide_csv_has_dates_and_a_column_for_each_label_and_is_written_back(
    shell: Shell, server: FakeServer, tmp_path: Path
) -> None:
    server.samples[canonical_labels({"__name__": "down", "value": "x"})] = [(2000, 2.0)]
    file = tmp_path / "x.csv"
    shell.ok("query", "--raw", "down", "--address", server.address, *RANGE, "--wide", "-o", file)
    lines = file.read_text().splitlines()
    assert lines[0] == '"time","__name__","path","label_value","value"'
    assert sorted(lines[1:]) == [
        '"1970-01-01 00:00:01.000","down","/a""b,c",,"5e-324"',
        '"1970-01-01 00:00:02.000","down",,"x","2"',
    ]
    (rows,) = read_rows(io.BytesIO(file.read_bytes()), "x.csv", "csv", now_ms=0)
    rows = rows.by_time()
    assert rows.ts_ms.tolist() == [1000, 2000]
    assert rows.values.tolist() == [5e-324, 2.0]
    assert rows.labels[rows.codes[0]] == canonical_labels({"__name__": "down", "path": '/a"b,c'})


def test_a_wide_parquet_has_timestamps(shell: Shell, server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    shell.ok("query", "--raw", "up", "--address", server.address, *RANGE, "--wide", "-o", file)
    table = pq.read_table(file)
    assert table.column_names == ["time", "__name__", "job", "value"]
    assert str(table.schema.field("time").type) == "timestamp[ms, tz=UTC]"
    assert table["value"].to_numpy().view("i8").tolist() == [
        int(np.float64(value).view("i8")) for _, value in server.samples[UP]
    ]
