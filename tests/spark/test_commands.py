"""`tsdb spark` as a shell sees it: a JSON summary, and after a failure the command for a rerun."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.cli import Shell
from support.servers.logs import LogFactory
from support.spark.imports import ImportGround
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS
from tsdb.log.meta import write_meta
from tsdb.model.meta import MetaSettings

PAST_MS = 1_577_836_800_000
PAST = ("--from", "2020-01-01T00:00Z", "--to", "2020-01-01T04:00Z")


@pytest.fixture
def shell(spark: SparkSession, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Commands find the shared session, and leave it running."""
    return Shell(capsysbinary, monkeypatch)


@pytest.fixture
def urls(embedded: ImportGround) -> tuple[str, ...]:
    return "--log", embedded.places.log, "--history", embedded.places.history, "--output", "json"


def test_a_failed_import_continues_by_the_command_of_its_message(
    shell: Shell, embedded: ImportGround, urls: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    lines = [{"labels": {"__name__": "up", "job": "j"}, "ts_ms": PAST_MS + n, "value": n} for n in range(50)]
    file.write_text("\n".join(map(json.dumps, [*lines, {**lines[0], "value": "x"}])))
    command = ("spark", "import", file, "--format", "jsonl", *urls)
    with embedded.no_loader():
        failed = shell.run(*command, "--wait", "100ms")
    assert failed.code == 1
    assert failed.out == b""
    assert "within 0.1 s the loader did not load all of it" in failed.err
    said = re.search(r"to run it again: tsdb spark import (--job-id \w+), with all other options unchanged", failed.err)
    assert said, failed.err
    again = shell.run(*command, *said[1].split())
    assert again.code == 1, "a row was refused"
    assert again.json["job"] == "import"
    assert again.json["job_id"] == said[1].split()[1]
    assert (again.json["samples"], again.json["rejected"], again.json["ok"]) == (50, 1, False)
    assert again.json["rows"] == [{"reason": "bad_value", "rows": 1}]
    assert again.json["seconds"] > 0
    assert len({key.order for key in embedded.rows()}) == 1, "a run that goes on has the keys of the one that failed"
    allowed = shell.ok(*command, *said[1].split(), "--allow-rejects", "--rejects", tmp_path / "rejects")
    assert allowed.json["ok"]
    assert len(embedded.rows()) == 1


def test_ranges_that_are_not_to_be_had_are_named(
    shell: Shell, embedded: ImportGround, urls: tuple[str, ...], tmp_path: Path
) -> None:
    for number in range(embedded.shared.partitions):
        for _ in range(20):
            embedded.log.append_sync(METRICS, number, encode_tick())
    recent = shell.run("spark", "rebuild", "--from", "1577836800000", "--to", "33134745600000", *urls)
    assert (recent.code, "too recent in 3 partition(s)" in recent.err) == (1, True), recent
    unverified = shell.run("spark", "verify", *PAST, *urls)
    assert (unverified.code, "the chunk stage has never run on partition 0" in unverified.err) == (1, True), unverified
    folder = tmp_path / "out"
    early = shell.run("spark", "export", "--to", folder, *urls)
    assert (early.code, "nothing is loaded of partition 0" in early.err) == (1, True), early
    assert "to run it again: tsdb spark export --overwrite, with all other options unchanged" in early.err
    folder.mkdir()
    there = shell.run("spark", "export", "--to", folder, "--partial", *urls)
    assert (there.code, "give another folder, or overwrite it" in there.err) == (1, True), there
    assert "to run the same again" not in there.err, "what is in the way may be somebody's"
    assert shell.ok("spark", "merge-late", *urls).json["chunks"] == 0
    rebuilt = shell.ok("spark", "rebuild", *PAST, *urls)
    assert (rebuilt.json["windows"], rebuilt.json["base_chunks"]) == (0, 0)


def test_a_range_before_the_logs_retention_is_named(shell: Shell, tmp_path: Path) -> None:
    with LogFactory(f"sqlite:///{tmp_path}/trimmed.db", "") as logs:
        admin = logs.create(2)
        log = logs.open()
        write_meta(log, MetaSettings(partitions=2))
        for _ in range(20):
            log.append_sync(METRICS, 1, encode_tick())
        log.append_sync(METRICS, 0, encode_tick())
        admin.trim(METRICS, {1: 10})
        for job in ("rebuild", "verify"):
            done = shell.run("spark", job, *PAST, "--log", logs.url)
            assert done.code == 1
            assert f"does not reach back to {PAST_MS} ms in 1 partition(s): whole are windows from" in done.err
            assert "(before_retention)" in done.err
