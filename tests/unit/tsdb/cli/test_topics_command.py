"""`tsdb topics` creates topics of the embedded log once, checks them by name, and keeps to the shared settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import Shell
from tsdb.cli.topics import described
from tsdb.log.open import open_topics
from tsdb.log.topics import require_topics, topic_specs
from tsdb.model.errors import ConfigMismatch


@pytest.fixture
def log(tmp_path: Path) -> tuple[str, ...]:
    return ("--log", f"sqlite:///{tmp_path}/log.db")


def test_topics_are_made_once_and_then_as_they_must_be(shell: Shell, log: tuple[str, ...]) -> None:
    made = shell.ok("topics", "create", *log, "--partitions", 3, "--replication", 1, "--output", "json")
    assert made.json["made"] == ["metrics", "series", "chunks", "chunks.dlq", "meta", "metadata"]
    assert made.err == ""  # There is no broker to lose.
    again = shell.ok("topics", "create", *log, "--partitions", 3, "--replication", 1, "--output", "json")
    assert again.json["made"] == []
    checked = shell.ok("topics", "check", *log, "--replication", 1, "--output", "json")
    assert checked.json == {"ok": True, "differences": []}


def test_what_is_made_is_said_in_words(shell: Shell, log: tuple[str, ...]) -> None:
    made = shell.ok("topics", "create", *log, "--partitions", 3, "--retention", "150h")
    assert made.text.splitlines() == [
        "made topic metrics: 3 partitions, records kept for 150h",
        "made topic series: 3 partitions, the newest record of each key kept, records kept for 90d",
        "made topic chunks: 3 partitions, the newest record of each key kept, records kept for 60d",
        "made topic chunks.dlq: 3 partitions, records kept for 14d",
        "made topic meta: 1 partition, the newest record of each key kept",
        "made topic metadata: 1 partition, the newest record of each key kept",
        "shared by all roles: time set production, placement labels job, instance",
        f"next: tsdb gateway {' '.join(log)} takes writes; tsdb store {' '.join(log)} answers reads",
    ]
    assert "found topic metrics: 3 partitions" in shell.ok("topics", "create", *log, "--partitions", 3).text


def test_an_embedded_log_is_correct_without_replicas(shell: Shell, log: tuple[str, ...]) -> None:
    shell.ok("topics", "create", *log, "--partitions", 3)
    assert shell.ok("topics", "check", *log).err == "all topics are correct\n"


def test_replicas_are_said_where_there_are_brokers() -> None:
    spec = topic_specs(2, replication=1)[0]
    assert described(spec, made=True, brokers=True).startswith("made topic metrics: 2 partitions, 1 replica each, ")


def test_a_difference_is_named_and_a_failure(shell: Shell, log: tuple[str, ...]) -> None:
    shell.ok("topics", "create", *log, "--partitions", 3, "--replication", 1)
    checked = shell.run("topics", "check", *log, "--partitions", 4, "--replication", 1, "--output", "json")
    assert checked.code == 1
    assert {"topic": "metrics", "setting": "partitions", "got": "3", "want": "4"} in checked.json["differences"]
    again = shell.run("topics", "create", *log, "--partitions", 4, "--replication", 1)
    assert again.code == 1
    assert "partitions is 3, must be 4" in again.err


def test_settings_that_all_must_share_are_checked_too(shell: Shell, log: tuple[str, ...]) -> None:
    shell.ok("topics", "create", *log, "--partitions", 3, "--replication", 1, "--time-set", "demo")
    checked = shell.run("topics", "check", *log, "--replication", 1)
    assert checked.code == 1
    assert "time_set" in checked.text
    shell.ok("topics", "check", *log, "--replication", 1, "--time-set", "demo")


def test_missing_topics_are_named(shell: Shell, log: tuple[str, ...]) -> None:
    checked = shell.run("topics", "check", *log, "--replication", 1, "--output", "json")
    assert checked.code == 1
    assert [row["got"] for row in checked.json["differences"]] == ["missing"] * 6


def test_an_older_installation_reads_how_to_create_a_new_topic(shell: Shell, log: tuple[str, ...]) -> None:
    shell.ok("topics", "create", *log, "--partitions", 3, "--replication", 1)
    with open_topics(log[1]) as admin:
        admin.delete("metadata")
    checked = shell.run("topics", "check", *log, "--replication", 1)
    assert (checked.code, "`tsdb topics create --partitions 3` creates" in checked.err) == (1, True)
    with open_topics(log[1]) as admin, pytest.raises(ConfigMismatch, match="`tsdb topics create --partitions 3`"):
        require_topics(admin, topic_specs(3, replication=1))  # As each role does at its start.
    made = shell.ok("topics", "create", *log, "--partitions", 3, "--replication", 1, "--output", "json")
    assert made.json["made"] == ["metadata"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--partitions", "1"), "log is required"),
        (("--log", "http://x", "--partitions", "1"), "http://x"),
        (("--log", "sqlite:///x.db"), "--partitions"),
        (("--log", "sqlite:///x.db", "--partitions", "0"), "0 is not in the range 1<=x"),
        (("--log", "sqlite:///x.db", "--partitions", "1", "--retention", "ever"), "not a duration"),
        (("--log", "sqlite:///x.db", "--partitions", "1", "--grpc", "h:1"), "--grpc"),
    ],
)
def test_a_misuse_is_exit_code_2(shell: Shell, arguments: tuple[str, ...], what: str) -> None:
    done = shell.run("topics", "create", *arguments)
    assert done.code == 2
    assert what in " ".join(done.err.split())
