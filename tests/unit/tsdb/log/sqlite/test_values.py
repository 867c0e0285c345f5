"""Values of an embedded log come back as they were appended, across dictionaries, restarts and trims."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tsdb.log.interface import METRICS, SERIES, Log, RecordBatch
from tsdb.log.records import read_batches
from tsdb.log.settings import LogSettings
from tsdb.log.sqlite import values
from tsdb.log.sqlite.admin import SqliteTopics
from tsdb.log.sqlite.log import SqliteLog
from tsdb.log.topics import TopicSpec
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch, CorruptData

IDS = random.Random(1).randbytes(4000)  # Ids that come in each record, and that nothing else shortens.


@pytest.fixture(autouse=True)
def small_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "DICTIONARY_BYTES", 20_000)
    monkeypatch.setattr(values, "RENEWAL_BYTES", 60_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.sqlite"
    with SqliteTopics(path, "") as topics:
        topics.create(TopicSpec(METRICS, 2, 1, {"cleanup.policy": "delete"}))
        topics.create(TopicSpec(SERIES, 2, 1, {"cleanup.policy": "compact,delete"}))
    return path


@pytest.fixture
def rows(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def opened(path: Path, *, guest: bool = False) -> Log:
    return SqliteLog(path, "", LogSettings(embedded_guest=guest), SystemClock())


def value(number: int) -> bytes:
    return IDS + number.to_bytes(4, "little") * 20


def append(path: Path, made: list[bytes | None], *, guest: bool = False) -> None:
    with opened(path, guest=guest) as log:
        for one in made:
            log.append_sync(METRICS, 0, one)


def read(path: Path, partition: int = 0) -> list[bytes]:
    with opened(path) as log:
        batches: list[RecordBatch] = list(read_batches(log, METRICS, partition))
        return [batch.record(i).value or b"" for batch in batches for i in range(len(batch.offsets))]


def dictionaries(rows: sqlite3.Connection) -> list[int]:
    return [number for (number,) in rows.execute("SELECT number FROM dictionaries ORDER BY number")]


def test_every_value_comes_back_across_many_dictionaries(path: Path, rows: sqlite3.Connection) -> None:
    made = [value(number) for number in range(80)]
    append(path, [b"", b"x", b"y" * 199, b"z" * 200, random.Random(2).randbytes(500), *made])
    assert read(path)[5:] == made
    assert read(path)[:4] == [b"", b"x", b"y" * 199, b"z" * 200]
    assert len(dictionaries(rows)) >= 4


def test_a_dictionary_makes_repeated_ids_cheap(path: Path, rows: sqlite3.Connection) -> None:
    append(path, [value(number) for number in range(40)])
    (coding, size), *_ = rows.execute("SELECT coding, length(value) FROM records ORDER BY id DESC LIMIT 1")
    assert coding > 0
    assert size < 300


def test_a_restarted_writer_goes_on_with_the_dictionary(path: Path, rows: sqlite3.Connection) -> None:
    append(path, [value(number) for number in range(8)])
    made = dictionaries(rows)
    append(path, [value(number) for number in range(8, 12)])
    assert dictionaries(rows) == made == [1]
    assert rows.execute("SELECT coding FROM records ORDER BY id DESC LIMIT 1").fetchone() == (1,)
    assert read(path) == [value(number) for number in range(12)]


def test_a_guest_makes_and_uses_no_dictionary(path: Path, rows: sqlite3.Connection) -> None:
    append(path, [value(number) for number in range(8)])
    append(path, [value(8)], guest=True)
    assert rows.execute("SELECT coding FROM records ORDER BY id DESC LIMIT 1").fetchone() in ((0,), (None,))
    assert read(path) == [value(number) for number in range(9)]


def test_a_trim_drops_the_dictionaries_of_trimmed_records_and_no_other(path: Path, rows: sqlite3.Connection) -> None:
    append(path, [value(number) for number in range(80)])
    before = dictionaries(rows)
    with SqliteTopics(path, "") as topics:
        for low in range(0, 80, 7):
            topics.trim(METRICS, {0: low})
            assert read(path) == [value(number) for number in range(low, 80)]
        assert len(dictionaries(rows)) < len(before)
        topics.delete(METRICS)
    assert dictionaries(rows) == []


def test_lanes_have_their_own_dictionaries(path: Path) -> None:
    with opened(path) as log:
        for number in range(40):
            log.append_sync(METRICS, number % 2, value(number))
    assert read(path, 0) == [value(number) for number in range(0, 40, 2)]
    assert read(path, 1) == [value(number) for number in range(1, 40, 2)]


def test_a_failed_transaction_takes_its_dictionary_along(path: Path, rows: sqlite3.Connection) -> None:
    with opened(path) as log:
        for number in range(5):
            log.append_sync(METRICS, 0, value(number))
        rows.execute("CREATE TRIGGER fail BEFORE INSERT ON dictionaries BEGIN SELECT RAISE(ABORT, 'no'); END")
        rows.commit()
        with pytest.raises(Exception, match="no"):
            log.append_sync(METRICS, 0, value(5))
        rows.execute("DROP TRIGGER fail")
        rows.commit()
        for number in range(6, 30):
            log.append_sync(METRICS, 0, value(number))
    assert read(path) == [value(number) for number in range(30) if number != 5]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE records SET value = x'00112233' WHERE coding > 0",
        "UPDATE records SET value = zeroblob(40) WHERE coding > 0",
        "DELETE FROM dictionaries",
        "UPDATE dictionaries SET data = x'28b52ffd'",
        # A frame that claims 2^62 bytes.
        "UPDATE records SET value = x'28b52ffde0000000000000004000' WHERE coding > 0",
    ],
)
def test_damaged_values_are_corrupt_data(path: Path, rows: sqlite3.Connection, damage: str) -> None:
    append(path, [value(number) for number in range(12)])
    rows.execute(damage)
    rows.commit()
    with pytest.raises(CorruptData):
        read(path)


def test_a_log_of_version_1_is_refused_by_name(path: Path, rows: sqlite3.Connection) -> None:
    rows.execute("ALTER TABLE records DROP COLUMN coding")
    rows.commit()
    with pytest.raises(ConfigMismatch, match=r"is of version 1; this program has version 2: let .* export") as caught:
        opened(path)
    assert caught.value.reason == "log_version"


def test_the_write_ahead_file_stays_small(path: Path) -> None:
    noise = random.Random(3)
    with opened(path) as log:
        for _ in range(60):
            log.append_sync(METRICS, 0, noise.randbytes(200_000))
        assert path.with_name(path.name + "-wal").stat().st_size < 6 * 1024 * 1024
