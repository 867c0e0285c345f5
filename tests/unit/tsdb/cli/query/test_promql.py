"""`tsdb query` prints the value of a PromQL expression in every form, its warnings, and the place of its errors."""

from __future__ import annotations

import io
import time

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from support.cli import Shell
from support.fakes.fake_reader import FakeServer
from tsdb.model.errors import HoleInRange, InvalidRequest
from tsdb.model.labels import canonical_labels
from tsdb.v1 import reader_pb2

STEP_MS = 5_000
END_MS = 600_000
INFO = 'info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "up" (1:6)'


@pytest.fixture(autouse=True)
def samples(server: FakeServer) -> None:
    """up{job="a"} grows by 1 a second, up{job="b"} by 2; up{job="c"} began in the last minute."""
    for job, growth, first_ms in (("a", 1, 0), ("b", 2, 0), ("c", 1, END_MS - 60_000)):
        times = range(first_ms, END_MS + 1, STEP_MS)
        labels = canonical_labels({"__name__": "up", "job": job})
        server.samples[labels] = [(ts_ms, growth * ts_ms / 1000) for ts_ms in times]


@pytest.fixture
def shell(shell: Shell, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("TSDB_ADDRESS", server.address)
    return shell


def asked(server: FakeServer) -> reader_pb2.QueryRequest:
    request = server.received(reader_pb2.QueryRequest)[-1]
    assert isinstance(request, reader_pb2.QueryRequest)
    return request


def test_an_instant_table_has_the_value_of_each_series_in_the_order_of_the_result(shell: Shell) -> None:
    done = shell.ok("query", "sort_desc(up)", "--at", END_MS)
    assert [line.split() for line in done.text.splitlines()] == [
        ["series", "value"],
        ['up{job="b"}', "1200"],
        ['up{job="a"}', "600"],
        ['up{job="c"}', "600"],
    ]
    assert done.err == "3 series at 1970-01-01T00:10:00.000Z\n"


def test_an_instant_without_a_value_says_how_old_a_sample_may_be(shell: Shell) -> None:
    done = shell.ok("query", "up", "--at", END_MS + 3_600_000)
    assert done.err.splitlines() == [
        "0 series at 1970-01-01T01:10:00.000Z",
        "a sample counts for 5m after its time, or for --lookback; --last 1d shows a range",
    ]


def test_values_are_printed_in_full(shell: Shell, server: FakeServer) -> None:
    for expression, text in (("0.1 + 0.2", "0.30000000000000004"), ("1e21", "1e+21"), ("-Inf", "-Inf"), ("NaN", "NaN")):
        assert shell.ok("query", f"vector({expression})", "--at", 0).text.split() == ["series", "value", "{}", text]


def test_a_range_table_has_the_course_of_each_series_with_its_gaps(shell: Shell) -> None:
    done = shell.ok("query", "up", "--start", 0, "--end", END_MS, "--lookback", "5s")
    assert [line.split()[:6] for line in done.text.splitlines()] == [
        ["series", "points", "first", "last", "min", "max"],
        ['up{job="a"}', "121", "0", "600", "0", "600"],
        ['up{job="b"}', "121", "0", "1200", "0", "1200"],
        ['up{job="c"}', "13", "540", "600", "540", "600"],
    ]
    assert done.text.splitlines()[1].endswith("▁▁▁▂▂▂▃▃▃▄▄▄▅▅▅▆▆▆▇▇▇███")
    assert done.text.splitlines()[3].endswith(21 * " " + "▁▄█")
    assert done.err == "3 series, 255 points, step 5s, 1970-01-01T00:00:00.000Z to 1970-01-01T00:10:00.000Z\n"


def test_the_sparkline_of_a_few_steps_has_a_bar_for_each(shell: Shell) -> None:
    done = shell.ok("query", "sum(up)", "--start", 0, "--end", "3m", "--end", 180_000, "--step", "1m")
    assert done.text.split()[-1] == "▁▃▆█"


def test_a_long_table_is_cut_and_says_so(shell: Shell) -> None:
    for times in (("--at", END_MS), ("--start", 0, "--end", END_MS)):
        done = shell.ok("query", "up", *times, "--rows", 1)
        assert len(done.text.splitlines()) == 2
        assert done.err.endswith("; 2 series not shown (--rows 0 shows all)\n")
        assert len(shell.ok("query", "up", *times, "--rows", 0).text.splitlines()) == 4


def test_ranges_are_a_table_of_samples(shell: Shell) -> None:
    done = shell.ok("query", 'up{job="b"}[10s]', "--at", END_MS)
    assert [line.split()[:6] for line in done.text.splitlines()] == [
        ["series", "samples", "first", "last", "min", "max"],
        ['up{job="b"}', "2", "1190", "1200", "1190", "1200"],
    ]
    assert done.err == "1 series, 2 samples, 1970-01-01T00:09:55.000Z to 1970-01-01T00:10:00.001Z\n"


@pytest.mark.parametrize(("expression", "printed"), [("1.5 * 2", "3"), ("1 / 0", "+Inf"), ('"a b"', "a b")])
def test_scalars_and_texts_are_printed_alone(shell: Shell, expression: str, printed: str) -> None:
    done = shell.ok("query", expression)
    assert (done.text, done.err) == (f"{printed}\n", "")


def test_json_has_the_kind_series_warnings_and_infos(shell: Shell, server: FakeServer) -> None:
    server.losses = ["samples of partition 3 may be lost: gap, record_offset 7"]
    done = shell.ok("query", 'rate(up{job="a"}[1m])', "--at", END_MS, "--output", "json")
    assert done.text.count("\n") == 1
    assert done.json == {
        "series": [{"labels": {"job": "a"}, "ts_ms": [END_MS], "values": [1.0]}],
        "samples": 1,
        "kind": "vector",
        "text": None,
        "warnings": server.losses,
        "infos": [f"PromQL {INFO}"],
    }
    assert done.err.splitlines() == ["warning: samples of partition 3 may be lost: gap, record offset 7", INFO]


@pytest.mark.parametrize(
    ("expression", "kind", "text", "series"),
    [
        ("absent_series", "vector", None, []),
        ("vector(NaN)", "vector", None, [{"labels": {}, "ts_ms": [9], "values": ["NaN"]}]),
        ("-Inf", "scalar", None, [{"labels": {}, "ts_ms": [9], "values": ["-Inf"]}]),
        ('"é"', "text", "é", []),
    ],
)
def test_json_of_every_kind(
    shell: Shell, expression: str, kind: str, text: str | None, series: list[dict[str, object]]
) -> None:
    done = shell.ok("query", "--at", 9, "--output", "json", "--", expression).json
    assert (done["kind"], done["text"], done["series"]) == (kind, text, series)


def test_csv_and_parquet_have_a_row_for_each_value(shell: Shell) -> None:
    times = ("--start", 540_000, "--end", END_MS, "--step", "30s", "--output")
    want = {"labels": ['{"job":"a"}'] * 3, "ts_ms": [540_000, 570_000, 600_000], "value": [1.0] * 3}
    query = ("query", 'rate(up{job="a"}[1m])', *times)
    assert pacsv.read_csv(io.BytesIO(shell.ok(*query, "csv").out)).to_pydict() == want
    assert pq.read_table(io.BytesIO(shell.ok(*query, "parquet").out)).to_pydict() == want


def test_raw_range_samples_keep_their_bits_in_parquet(shell: Shell, server: FakeServer) -> None:
    odd = np.array([0x7FF8000000000003], np.uint64).view(np.float64)[0]
    server.samples[canonical_labels({"__name__": "odd"})] = [(1000, -0.0), (2000, odd)]
    table = pq.read_table(io.BytesIO(shell.ok("query", "odd[1m]", "--at", 9000, "--output", "parquet").out))
    assert table["value"].to_numpy().view(np.uint64).tolist() == [1 << 63, 0x7FF8000000000003]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_text_has_no_rows(shell: Shell, form: str) -> None:
    done = shell.run("query", '"a"', "--output", form)
    assert (done.code, done.out) == (1, b"")
    assert done.err == "error: the value is a text, which has no samples: take --output table or json\n"


def test_a_request_carries_the_options(shell: Shell, server: FakeServer) -> None:
    shell.ok("query", "up", "--at", "2026-01-01", "--lookback", "30s", "--allow-stale", "--allow-holes")
    request = asked(server)
    assert (request.query, request.start_ms, request.end_ms, request.step_ms) == ("up", 1767225600000, 1767225600000, 0)
    assert request.lookback_ms == 30_000
    assert (request.options.allow_stale, request.options.allow_holes) == (True, True)
    shell.ok("query", "up", "--start", 5, "--end", 65)
    request = asked(server)
    assert (request.start_ms, request.end_ms, request.step_ms, request.lookback_ms) == (5, 65, 1000, 0)
    assert (request.options.allow_stale, request.options.allow_holes) == (False, False)


def test_the_instant_is_now_unless_given(shell: Shell, server: FakeServer) -> None:
    before_ms = time.time_ns() // 1_000_000
    shell.ok("query", "up")
    assert before_ms <= asked(server).start_ms <= time.time_ns() // 1_000_000
    assert asked(server).step_ms == 0


@pytest.mark.parametrize(
    ("expression", "lines"),
    [
        ("rate(up[5m)", ['error: 1:11: parse error: unexpected ")" in subquery', "  rate(up[5m)", "            ^"]),
        ("up\n\t/ / 2", ["error: 2:4: parse error: unexpected", "   / / 2", "     ^"]),
        ('{a="日本"} %% 1', ["error: 1:15: parse error: unexpected", '  {a="日本"} %% 1', "              ^"]),
        ("sum(up", ["error: 1:7: parse error: unclosed left parenthesis", "  sum(up", "        ^"]),
        ("", ["error: 1:1: parse error: no expression found in input (bad_query)"]),
    ],
)
def test_a_parse_error_shows_its_place(shell: Shell, expression: str, lines: list[str]) -> None:
    done = shell.run("query", expression)
    assert (done.code, done.out) == (1, b"")
    first, *rest = done.err.splitlines()
    assert first.startswith(lines[0])
    assert first.endswith("(bad_query)")
    assert rest == lines[1:]


def test_other_refusals_are_one_line_with_options_for_fields(shell: Shell, server: FakeServer) -> None:
    server.fail = [HoleInRange("a hole; allow_holes answers without it"), InvalidRequest("too long", reason="steps")]
    assert shell.run("query", "up").err == "error: a hole; --allow-holes answers without it (hole)\n"
    done = shell.run("query", "up", "--last", "1h")
    assert (done.code, done.err) == (1, "error: too long (steps)\n")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--agg", "avg", "--step", "1m"), "--agg goes with --raw"),
        (("--last-n", "3"), "--last-n goes with --raw"),
        (("--downsampled",), "--downsampled goes with --raw"),
        (("--encoding", "raw"), "--encoding goes with --raw"),
        (("--at", "now", "--last", "5m"), "give --at for one time, or --start, --end, --last and --step for a range"),
        (("--at", "now", "--step", "5m"), "give --at for one time"),
        (("--start", "2", "--end", "1"), "--start 2 is after --end 1"),
        (("--last", "5m", "--start", "1"), "give --last, or --start and --end"),
        (("--lookback", "0"), "from 1 ms"),
        (("--step", "-1s"), "'-1s' is not a duration"),
        (("--at", "1700000000"), "looks like seconds"),
        (("--out", "x"), "--out x: a file is json, csv or parquet"),
    ],
)
def test_a_misuse_is_exit_code_2_and_sends_nothing(
    shell: Shell, server: FakeServer, options: tuple[str, ...], problem: str
) -> None:
    done = shell.run("query", "up", *options)
    assert (done.code, done.out) == (2, b"")
    assert problem in done.err
    assert server.requests == []
