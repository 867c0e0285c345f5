"""`tsdb series`, `labels`, `coverage`, `status`, `watch`: the same answers as tables and as JSON."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from support.cli import Shell
from support.fakes.fake_reader import TOPIC_ID, FakeServer
from tsdb.cli.cardinality import BAR_WIDTH, bar
from tsdb.model.errors import OutOfCoverage, Unavailable
from tsdb.model.labels import canonical_labels
from tsdb.model.lag import LAG_UNKNOWN
from tsdb.v1 import reader_pb2

UP = canonical_labels({"__name__": "up", "job": "a"})
DOWN = canonical_labels({"__name__": "down", "job": "b"})


@pytest.fixture(autouse=True)
def samples(server: FakeServer) -> None:
    server.samples[UP] = [(1000, 1.0), (2000, 2.0)]
    server.samples[DOWN] = [(1500, 1.0)]


def test_series_are_listed_by_labels(shell: Shell, server: FakeServer) -> None:
    rows = shell.ok("series", "--address", server.address, "--output", "json").json["series"]
    assert [(row["labels"]["__name__"], row["first_seen_ms"], row["last_seen_ms"]) for row in rows] == [
        ("down", 1500, 1500),
        ("up", 1000, 2000),
    ]
    assert all(len(row["series_id"]) == 16 for row in rows)
    done = shell.ok("series", "up", "--address", server.address, "--last", "1h")
    assert done.text.splitlines()[1].split() == [
        'up{job="a"}', "0", "1970-01-01T00:00:01.000Z", "1970-01-01T00:00:02.000Z",
    ]  # fmt: skip
    assert server.received(reader_pb2.SeriesRequest)[-1].HasField("start_ms")


def test_series_are_counted_by_labels(shell: Shell, server: FakeServer) -> None:
    grouped = shell.ok("series", "--group-by", "job", "--address", server.address, "--output", "json").json
    assert grouped == {"groups": [{"labels": {"job": "a"}, "series": 1}, {"labels": {"job": "b"}, "series": 1}]}
    table = shell.ok("series", "--group-by", "job", "--address", server.address).text
    assert [line.split() for line in table.splitlines()] == [["job", "series"], ["a", "1"], ["b", "1"]]


@pytest.mark.parametrize(
    ("options", "remark"),
    [
        (("nosuch",), "no series has a label 'nosuch'"),
        (("jb",), "no label 'jb'; did you mean 'job'?"),
        (("job", "--selector", "nosuch"), "no series of nosuch has a label 'job'"),
        (("--selector", "nosuch"), "no series of nosuch in memory; --last 30d looks into history too"),
    ],
)
def test_an_empty_list_of_labels_is_explained(
    shell: Shell, server: FakeServer, options: tuple[str, ...], remark: str
) -> None:
    done = shell.ok("labels", *options, "--address", server.address)
    assert done.err == f"{remark}\n"


@pytest.mark.parametrize(
    "command",
    [
        ("series", "{}"),
        ("labels", "job", "--selector", "{}"),
        ("cardinality", "--selector", "{}"),
        ("watch", "{}"),
        ("query", "--raw", "{}"),
        ("history", "show", "{}"),
        ("history", "windows", "{}"),
        ("spark", "export", "{}", "--to", "folder"),
    ],
    ids=" ".join,
)
def test_every_command_with_a_selector_shows_the_place_of_its_error(shell: Shell, command: tuple[str, ...]) -> None:
    done = shell.run(*(part.replace("{}", 'up{job=~"("}') for part in command))
    assert done.code == 2
    line, text, caret = done.err.splitlines()
    assert "1:4: parse error: " in line
    assert (text, caret) == ('  up{job=~"("}', "     ^")


def test_labels_are_listed_by_name_or_value(shell: Shell, server: FakeServer) -> None:
    assert shell.ok("labels", "--address", server.address, "--output", "json").json == {"names": ["__name__", "job"]}
    values = shell.ok("labels", "job", "--selector", "up", "--address", server.address, "--output", "json")
    assert values.json == {"values": ["a"]}
    assert shell.ok("labels", "job", "--address", server.address).text.split() == ["job", "a", "b"]


def test_the_largest_metrics_are_a_table_with_bars_json_and_csv(shell: Shell, server: FakeServer) -> None:
    server.samples[canonical_labels({"__name__": "up", "job": "b"})] = [(1000, 1.0)]
    command = ("cardinality", "--top", "2", "--address", server.address)
    done = shell.ok(*command)
    lines = [line.split() for line in done.text.splitlines()]
    assert lines[1] == ["up", "2", "66.7", "%", "█" * BAR_WIDTH]
    assert lines[2] == ["down", "1", "33.3", "%", "█" * (BAR_WIDTH // 2)]
    assert done.err.strip() == "3 series, 2 metrics"
    found = shell.ok(*command, "--output", "json").json
    assert (found["by"], found["series"], found["groups_total"]) == ("metric", 3, 2)
    assert found["groups"] == [{"metric": "up", "series": 2}, {"metric": "down", "series": 1}]
    assert shell.ok(*command, "--output", "csv").text == "metric,series\nup,2\ndown,1\n"
    assert "the largest 1 shown (--top)" in shell.ok("cardinality", "--top", "1", "--address", server.address).err


def test_a_group_that_has_any_series_has_a_bar() -> None:
    assert [bar(size, 1000) for size in (0, 1, 500, 1000)] == ["", "▏", "█" * (BAR_WIDTH // 2), "█" * BAR_WIDTH]
    assert bar(0, 0) == ""


def test_coverage_says_what_is_held(shell: Shell, server: FakeServer) -> None:
    server.state.holes.add(partition=0, start_ms=0, end_ms=1000, reason="corrupt_record", record_offset=7)
    [state] = shell.ok("coverage", "--address", server.address, "--output", "json").json["partitions"]
    assert (state["coverage_start_ms"], state["applied_offset"], state["topic_id"]) == (1000, 0, TOPIC_ID)
    assert state["holes"][0]["reason"] == "corrupt_record"
    done = shell.ok("coverage", "--address", server.address)
    assert "1970-01-01T00:00:01.000Z" in done.text
    assert "hole in partition 0" in done.err


def test_status_is_a_line_a_partition(shell: Shell, server: FakeServer) -> None:
    server.state.samples, server.state.bytes, server.state.lag_ms = 1_000_000, 420_000, 25_000
    server.state.ready, server.state.reason = False, "lagging"
    done = shell.ok("status", "--address", server.address)
    assert done.text.splitlines()[1].split() == [
        "0", "no", "lagging", "0", "25,000", "1970-01-01T00:00:01.000Z", "0", "1,000,000", "420,000", "0.42", "0",
    ]  # fmt: skip
    assert (
        shell.ok("status", "--address", server.address, "--output", "json").json["partitions"][0]["reason"] == "lagging"
    )


@pytest.fixture
def narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "60", "FORCE_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("narrow_terminal")
def test_a_narrow_terminal_shows_every_cell_whole(shell: Shell, server: FakeServer) -> None:
    server.state.ready, server.state.reason, server.state.samples = False, "lagging", 1_000_000
    text = shell.ok("status", "--address", server.address).text
    lines = text.splitlines()
    assert lines[0] == "partition 0"
    assert max(map(len, lines)) <= 60
    for part in ("ready: no", "reason: lagging", "lag records: 0", "covers from: 1970-01-01T00:00:01.000Z"):
        assert any(part in line for line in lines), part
    assert "1,000,000" in text


@pytest.mark.usefixtures("narrow_terminal")
def test_a_table_that_fits_a_narrow_terminal_stays_a_table(shell: Shell, server: FakeServer) -> None:
    shown = shell.ok("labels", "job", "--address", server.address).text
    assert [line.strip() for line in shown.splitlines()][1:] == ["a", "b"]


@pytest.fixture(params=[(503, {"ready": False, "reason": "draining"}), (200, {"ready": True, "reason": ""})])
def probe(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, object]]]:
    code, body = request.param

    class Probe(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/-/ready" else 404)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Probe) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"127.0.0.1:{running.server_port}", body
        running.shutdown()
        thread.join()


def test_status_tells_how_far_history_is_and_what_is_left(shell: Shell, server: FakeServer) -> None:
    assert "history" not in shell.ok("status", "--address", server.address, "--output", "json").json
    server.state.coverage_start_ms, server.state.since_offset = 100_000, 7
    server.history = [
        reader_pb2.HistoryState(topic_id="t", position=9, emitted_through_ms=160_000, reaches_memory=True)
    ]
    shown = shell.ok("status", "--address", server.address).text.splitlines()
    assert shown[-1].split() == ["0", "1970-01-01T00:02:40.000Z", "60", "9", "7", "yes"]
    (told,) = shell.ok("status", "--address", server.address, "--output", "json").json["history"]
    assert (told["position"], told["emitted_through_ms"], told["reaches_memory"]) == (9, 160_000, True)
    server.state.from_start = True
    assert "60" not in shell.ok("status", "--address", server.address).text.splitlines()[-1].split()


def test_status_and_coverage_show_the_partitions_of_an_experiment_and_its_name(
    shell: Shell, server: FakeServer
) -> None:
    assert "experiment" not in shell.ok("status", "--address", server.address, "--output", "json").json
    server.experiment = "trial"
    found = shell.ok("status", "--address", server.address, "--output", "json").json
    assert (found["experiment"], len(found["partitions"])) == ("trial", 1)
    assert "of the experiment trial" in shell.ok("status", "--address", server.address).err
    assert len(shell.ok("coverage", "--address", server.address, "--output", "json").json["partitions"]) == 1


def test_status_shows_the_chunk_stage_whichever_engine_runs_it(shell: Shell, server: FakeServer) -> None:
    assert "chunk_stage" not in shell.ok("status", "--address", server.address, "--output", "json").json
    stage = server.chunk_stage = reader_pb2.ChunkStageState(
        engines=["spark"],
        members=1,
        lag_records=1_234,
        emitted_through_ms=30_000,
        last_commit_ms=60_000,
        as_of_ms=61_000,
    )
    shown = shell.ok("status", "--address", server.address).text.splitlines()
    assert shown[-2].split("  ")[0] == "chunk stage"
    assert shown[-1].split() == [
        "spark", "1", "1,234", "0",
        "1970-01-01T00:01:00.000Z", "1970-01-01T00:00:30.000Z", "1970-01-01T00:01:01.000Z",
    ]  # fmt: skip
    told = shell.ok("status", "--address", server.address, "--output", "json").json["chunk_stage"]
    assert (told["engines"], told["lag_records"], told["last_commit_ms"]) == (["spark"], 1_234, 60_000)
    stage.Clear()
    stage.windows_overdue = 7
    assert shell.ok("status", "--address", server.address).text.splitlines()[-1].split()[:4] == [
        "nobody",
        "0",
        "0",
        "7",
    ]


def test_status_asks_the_probe_where_told(
    shell: Shell, server: FakeServer, probe: tuple[str, dict[str, object]]
) -> None:
    address, body = probe
    done = shell.ok("status", "--address", server.address, "--http", address, "--output", "json")
    assert done.json["process"] == body
    text = shell.ok("status", "--address", server.address, "--http", address).err
    assert ("process: ready" if body["ready"] else "process: not ready draining") in text


def test_a_probe_that_is_not_there_is_a_failure(shell: Shell, server: FakeServer) -> None:
    done = shell.run("status", "--address", server.address, "--http", "127.0.0.1:1")
    assert (done.code, "(unreachable)" in done.err) == (1, True)


def watch_frame(offset: int, values: list[float]) -> reader_pb2.WatchResponse:
    response = reader_pb2.WatchResponse(
        topic_id=TOPIC_ID,
        last_record_offset=offset,
        record_offsets=np.full(len(values), offset, "<i8").tobytes(),
        series_ids=np.full(len(values), 9, "<u8").tobytes(),
        ts_ms=np.arange(len(values), dtype="<i8").tobytes(),
        values=np.array(values).tobytes(),
    )
    response.series.series_ids = np.array([9], "<u8").tobytes()
    response.series.labels = UP
    response.series.label_lengths = np.array([len(UP)], "<u4").tobytes()
    return response


def test_watch_prints_each_sample_once_across_a_reconnect(shell: Shell, server: FakeServer) -> None:
    server.watch_frames = [
        [watch_frame(3, [1.0, float("nan")]), Unavailable("restarting")],
        [watch_frame(4, [2.0])],
    ]
    done = shell.ok("watch", "up", "--address", server.address, "--limit", "3")
    lines = [json.loads(line) for line in done.text.splitlines()]
    labels = {"__name__": "up", "job": "a"}
    assert lines == [
        {"labels": labels, "ts_ms": 0, "value": 1.0, "partition": 0, "record_offset": 3},
        {"labels": labels, "ts_ms": 1, "value": "NaN", "partition": 0, "record_offset": 3},
        {"labels": labels, "ts_ms": 0, "value": 2.0, "partition": 0, "record_offset": 4},
    ]


def test_watch_ends_at_its_limit_or_duration(shell: Shell, server: FakeServer) -> None:
    server.watch_frames = [[watch_frame(3, [1.0, 2.0, 3.0])]]
    assert len(shell.ok("watch", "up", "--address", server.address, "--limit", "2").text.splitlines()) == 2
    assert shell.ok("watch", "up", "--address", server.address, "--duration", "200ms").out == b""


def test_a_watch_too_far_behind_is_a_failure(shell: Shell, server: FakeServer) -> None:
    server.watch_frames = [[OutOfCoverage("too far behind", reason="watch_ring")]]
    done = shell.run("watch", "up", "--address", server.address)
    assert (done.code, done.err) == (1, "error: too far behind (watch_ring)\n")


AWAY = reader_pb2.PartAway(
    part="store", address="10.0.0.3:7420", error="nothing listens at 10.0.0.3:7420", next_step="Start it."
)


def test_status_names_a_part_that_is_away_its_address_and_the_next_step(shell: Shell, server: FakeServer) -> None:
    assert shell.ok("status", "--address", server.address, "--output", "json").json["away"] == []
    server.away = [AWAY]
    done = shell.run("status", "--address", server.address)
    assert done.code == 1
    assert "away: store 10.0.0.3:7420: nothing listens at 10.0.0.3:7420. Start it." in done.err.splitlines()
    assert done.text.splitlines()[0].split()[0] == "partition"
    found = shell.run("status", "--address", server.address, "--output", "json")
    assert found.code == 1
    assert found.json["away"] == [
        {
            "part": "store",
            "address": "10.0.0.3:7420",
            "error": "nothing listens at 10.0.0.3:7420",
            "next_step": "Start it.",
        }
    ]


def test_status_names_the_server_that_is_away_in_json_too(shell: Shell) -> None:
    done = shell.run("status", "--address", "127.0.0.1:1", "--timeout", "1s", "--output", "json")
    assert done.code == 1
    (part,) = done.json["away"]
    assert (part["part"], part["address"]) == ("server", "127.0.0.1:1")
    assert "nothing listens at 127.0.0.1:1" in part["error"]
    assert "Start the server" in part["next_step"]
    assert "nothing listens at 127.0.0.1:1: start the server" in done.err


@pytest.mark.parametrize("command", ["status", "coverage"])
def test_an_unknown_lag_is_never_shown_as_0(shell: Shell, server: FakeServer, command: str) -> None:
    server.state.lag_records = server.state.lag_ms = LAG_UNKNOWN
    server.chunk_stage = reader_pb2.ChunkStageState(lag_records=LAG_UNKNOWN)
    found = shell.ok(command, "--address", server.address, "--output", "json").json
    assert (found["partitions"][0]["lag_records"], found["partitions"][0]["lag_ms"]) == (None, None)
    text = shell.ok(command, "--address", server.address).text
    assert str(LAG_UNKNOWN) not in text.replace(",", "")
    if command == "status":
        assert found["chunk_stage"]["lag_records"] is None
        assert text.split().count("unknown") == 3


@pytest.mark.slow  # The request timeout.
def test_a_command_on_a_log_that_is_away_names_its_address_and_the_next_step(shell: Shell) -> None:
    done = shell.run("log", "offsets", "--log", "kafka://127.0.0.1:1")
    assert done.code == 1
    line = done.err.splitlines()[-1]
    assert "no broker answers at kafka://127.0.0.1:1: check that Kafka runs there, or correct the setting log" in line
    assert line.endswith("(log_unavailable)")
