"""`tsdb chunks` and `tsdb log` over an embedded log: contents, progress of the stage, and a repair."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.cli import Shell
from support.data.detail_cases import histograms
from support.data.late_writer import announce_all
from support.fakes.replay_log import encoded
from support.servers.chunkers import FastClock, chunker_options, running, wait_emitted
from support.servers.logs import LogFactory
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.progress import Progress, encode_progress
from tsdb.codec.chunk.key import decode_key
from tsdb.codec.crc32c import crc32c
from tsdb.codec.records.log_record import encode_record, encode_tick
from tsdb.log.interface import CHUNKS, METRICS, Log, Position
from tsdb.log.lone_member import IdleListener
from tsdb.log.records import read_to_end
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import ManualClock
from tsdb.model.details import SampleDetails
from tsdb.model.time_set import DEMO

BASE_MS = 1_700_000_010_000 // DEMO.window_ms * DEMO.window_ms
ARGUMENTS = ("--time-set", "demo")


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogFactory]:
    with LogFactory(f"sqlite:///{tmp_path / 'log.db'}", "") as factory:
        factory.create(1, timestamp_type=CREATE_TIME)
        yield factory


@pytest.fixture
def log(logs: LogFactory) -> Log:
    """Two windows of samples, one of them late, and a corrupt record."""
    log = logs.open(clock=ManualClock(BASE_MS))
    announce_all(log, 0, BASE_MS)
    for second in range(0, 60, 5):
        put(log, encoded((0, BASE_MS + second * 1000, float(second))), BASE_MS + second * 1000)
    put(log, b"nonsense", BASE_MS + 60_000)
    put(log, encoded((0, BASE_MS + 1, 7.5)), BASE_MS + 61_000)
    put(log, encode_tick(), BASE_MS + 70_000)
    return log


def put(log: Log, value: bytes, broker_ms: int) -> None:
    log.append_sync(METRICS, 0, value, timestamp_ms=broker_ms)


def run_chunker(log: Log) -> None:
    clock = FastClock(BASE_MS + 80_000, speed=1.0)
    with running(log, chunker_options(), clock) as chunker:
        wait_emitted(chunker, [0], BASE_MS + 60_000)


def at(logs: LogFactory) -> tuple[str, ...]:
    return ("--log", logs.url, "--output", "json")


def test_the_log_is_shown_record_by_record_and_by_its_ends(shell: Shell, logs: LogFactory, log: Log) -> None:
    done = shell.ok("log", "dump", *at(logs), "--partition", 0, "--from", 11)
    assert [row["state"] for row in map(json_of, done.text.splitlines())] == ["samples", "corrupt", "samples", "tick"]
    (ends,) = shell.ok("log", "offsets", *at(logs), "--at", BASE_MS + 5_000).json["partitions"]
    assert ends == {
        "partition": 0,
        "low": 0,
        "high": 15,
        "records": 15,
        "first_ms": BASE_MS,
        "last_ms": BASE_MS + 70_000,
        "at": 1,
    }
    table = shell.ok("log", "dump", "--log", logs.url, "--partition", 0, "--limit", 1).text
    assert "2023-11-14" in table
    assert shell.run("log", "dump", *at(logs), "--partition", 1).code == 2


def test_the_log_is_shown_with_the_details_of_its_records(shell: Shell, logs: LogFactory) -> None:
    log = logs.open(clock=ManualClock(BASE_MS))
    columns = histograms([0, 2], 1)
    details = SampleDetails(np.array([BASE_MS, 0, 0]), columns, np.array([-1, 0, 1]))
    values = np.array([1.0, *columns.sums])
    ids, times = np.arange(3).astype(np.uint64), np.full(3, BASE_MS)
    put(log, encode_record(np.array([1], np.uint64), np.array([3], np.uint32), ids, times, values, details), BASE_MS)
    put(log, encoded((0, BASE_MS, 1.0)), BASE_MS)
    rows = [json_of(line) for line in shell.ok("log", "dump", *at(logs), "--partition", 0).text.splitlines()]
    assert [(row["state"], row["samples"], row["histograms"], row["starts"]) for row in rows] == [
        ("samples", 3, 2, 1),
        ("samples", 1, 0, 0),
    ]
    assert "histograms" in shell.ok("log", "dump", "--log", logs.url, "--partition", 0).text


def test_chunks_markers_and_holes_are_shown(shell: Shell, logs: LogFactory, log: Log, tmp_path: Path) -> None:
    run_chunker(log)
    rows = [json_of(line) for line in shell.ok("chunks", "dump", *at(logs)).text.splitlines()]
    whats = [row["what"] for row in rows if row["what"] != "progress"]
    assert whats.count("base") == 2
    assert whats.count("window") == 3  # One is empty: it was open when the log began.
    assert {"late", "hole"} < set(whats)
    (late,) = (row for row in rows if row["what"] == "late")
    assert (late["samples"], late["start_ms"], late["order"]) == (1, BASE_MS, 13)
    assert "corrupt_record" in next(str(row["text"]) for row in rows if row["what"] == "hole")
    chunk = next(record.value for record in read_to_end(log, CHUNKS, 0) if record.offset == late["offset"])
    file = tmp_path / "one.chunk"
    file.write_bytes(chunk or b"")
    (sample,) = shell.ok("chunks", "show", file, "--output", "json").text.splitlines()
    assert json_of(sample)["value"] == 7.5
    assert json_of(sample)["order"] == 13
    assert shell.run("chunks", "show", "-", stdin=b"nonsense").code == 1


def test_duplicates_are_counted_and_conflicts_are_a_failure(shell: Shell, logs: LogFactory, log: Log) -> None:
    run_chunker(log)
    clean = shell.ok("chunks", "find-duplicates", *at(logs)).json["partitions"][0]
    assert (clean["keys"], clean["equal"], clean["conflicts"]) == (3, 0, [])
    record = next(record for record in read_to_end(log, CHUNKS, 0) if record.key and record.key[0] == 1)
    log.append_sync(CHUNKS, 0, record.value, key=record.key)
    assert shell.ok("chunks", "find-duplicates", *at(logs)).json["partitions"][0]["equal"] == 1
    log.append_sync(CHUNKS, 0, b"other", key=record.key)
    done = shell.run("chunks", "find-duplicates", "--log", logs.url)
    assert done.code == 1
    assert str(decode_key(record.key or b"")) in done.err


def test_status_tells_what_is_committed(shell: Shell, logs: LogFactory, log: Log) -> None:
    (before,) = shell.ok("chunks", "status", *at(logs), *ARGUMENTS).json["partitions"]
    assert (before["position"], before["trouble"]) == (None, None)
    run_chunker(log)
    (after,) = shell.ok("chunks", "status", *at(logs), *ARGUMENTS).json["partitions"]
    assert after["emitted_through_ms"] >= BASE_MS + 60_000
    assert after["trouble"] is None


def test_a_gap_is_shown_first_and_accepted_as_a_hole(shell: Shell, logs: LogFactory, log: Log) -> None:
    run_chunker(log)
    commit(log, Position(3, encode_progress(Progress(3, BASE_MS), log.topic_id(METRICS))))
    logs.topics().trim(METRICS, {0: 10})
    status = shell.run("chunks", "status", *at(logs), *ARGUMENTS)
    assert (status.code, status.json["partitions"][0]["trouble"]) == (1, "chunk_gap")
    shown = shell.run("chunks", "resume", *at(logs), *ARGUMENTS, "--accept-gap")
    assert shown.code == 1
    assert shown.json["partitions"][0]["needs"] == "accept-gap"
    assert not shown.json["partitions"][0]["done"]
    refused = shell.run("chunks", "resume", *at(logs), *ARGUMENTS, "--accept-replay", "--yes")
    assert refused.code == 1
    log.close()  # An embedded log has one writer.
    done = shell.ok("chunks", "resume", *at(logs), *ARGUMENTS, "--accept-gap", "--yes").json["partitions"][0]
    assert done["done"]
    rows = map(json_of, shell.ok("chunks", "dump", *at(logs)).text.splitlines())
    holes = {row["start_ms"]: str(row["text"]) for row in rows if row["what"] == "hole"}
    assert "gap_accepted" in holes[done["hole_start_ms"]]
    assert shell.ok("chunks", "resume", *at(logs), *ARGUMENTS).json["partitions"] == []
    run_chunker(logs.open(clock=ManualClock(BASE_MS)))


@pytest.mark.parametrize("metadata", ["1 another-log 5 5 crc", "9 x 1 1", "broken"])
def test_a_commit_that_cannot_be_used_is_replaced_by_the_last_marker(
    shell: Shell, logs: LogFactory, log: Log, metadata: str
) -> None:
    run_chunker(log)
    commit(log, Position(1, sealed(metadata)))
    shown = shell.run("chunks", "resume", *at(logs), *ARGUMENTS).json["partitions"][0]
    assert shown["needs"] == "accept-replay"
    log.close()
    shell.ok("chunks", "resume", *at(logs), *ARGUMENTS, "--accept-replay", "--yes")
    (after,) = shell.ok("chunks", "status", *at(logs), *ARGUMENTS).json["partitions"]
    assert after["emitted_through_ms"] >= BASE_MS + 60_000


def sealed(metadata: str) -> str:
    text = metadata.removesuffix(" crc")
    return metadata if metadata == "broken" else f"{text} {crc32c(text.encode()):08x}"


def commit(log: Log, position: Position) -> None:
    with log.group(GROUP_ID) as group:
        group.join([METRICS], IdleListener(log))
        while not group.assigned():
            group.poll(0.05)
        group.commit({(METRICS, 0): position})


def json_of(line: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(line)
    return found


def test_a_key_of_no_kind_is_shown_as_bad(shell: Shell, logs: LogFactory, log: Log) -> None:
    log.append_sync(CHUNKS, 0, b"x", key=struct.pack("<B", 9))
    assert shell.ok("chunks", "dump", *at(logs)).json["what"] == "bad"
