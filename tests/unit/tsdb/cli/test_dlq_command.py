"""`tsdb dlq`: dead letters are shown, put back with their hole taken back, and dropped; never without --yes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.cli import Shell
from support.data.chunk_topics import WINDOW_MS, append_entries, chunk_entry, chunk_value
from support.fakes.fake_chunk_store import FakeChunkStore
from support.servers.loaders import OPTIONS, is_loaded
from support.servers.logs import LogFactory, wait_until
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history.loader.dead_letters import DeadLetter
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, Log, Position, TopicPartition
from tsdb.log.open import open_topics
from tsdb.log.records import read_to_end
from tsdb.log.topics import topic_specs
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import PRODUCTION
from tsdb.parallel_consumer import Record
from tsdb.parallel_consumer.offsets.metadata import AttemptCounts, CommitMetadata, encode_metadata
from tsdb.parallel_consumer.scheduling.dead_letters import PREFIX, FailureDetails, dead_letter

KEY = ChunkKey(77, 3 * WINDOW_MS, Kind.BASE, 500, 0)
VALUE = chunk_value(77, 3 * WINDOW_MS, 1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(partitions=2)
        return factory.url


@contextmanager
def opened(url: str) -> Iterator[Log]:
    """The log, which has one writing process or command at a time."""
    with LogFactory(url, "") as factory:
        yield factory.open()


def load(log: Log, store: FakeChunkStore, options: LoaderOptions = OPTIONS) -> None:
    loader = Loader(log, store, options, SystemClock(), seed=1)
    loader.start()
    wait_until(lambda: is_loaded(log))
    loader.close()
    assert loader.join(60.0)


@pytest.fixture
def store(url: str) -> FakeChunkStore:
    """A history after a loader that refused a chunk that is too large and a corrupt one."""
    store = FakeChunkStore()
    with opened(url) as log:
        append_entries(log, [chunk_entry(1, KEY, VALUE), chunk_entry(1, ChunkKey(77, 0, Kind.BASE, 5, 0), b"garbage")])
        load(log, store, LoaderOptions(PRODUCTION, part_bytes_max=64))
    assert len(store.hole_list) == 2
    return store


def test_dead_letters_are_listed_and_shown(shell: Shell, url: str, store: FakeChunkStore) -> None:
    rows = shell.ok("dlq", "ls", "--log", url, "--output", "json").json["dead_letters"]
    assert [row["what"] for row in rows] == [f"base chunk of pack {77:016x}"] * 2
    assert [row["from"] for row in rows] == ["chunks/1@0", "chunks/1@1"]
    assert "limit is 64" in rows[0]["message"]
    assert "garbage" not in shell.ok("dlq", "ls", "--log", url).text
    one = ("dlq", "show", "--log", url, "--partition", 1, "--offset", 0)
    story = shell.ok(*one).json["story"]
    assert story["exception"] == "tsdb.history.loader.errors.NotLoadable"
    assert shell.ok(*one, "--value", "-").out == VALUE
    assert shell.ok("dlq", "ls", "--log", url, "--limit", 1, "--output", "json").text.count("chunks/1@") == 1


def test_nothing_is_put_back_without_yes(shell: Shell, url: str, store: FakeChunkStore) -> None:
    done = shell.ok("dlq", "replay", "--log", url)
    assert "2 would be put back; `--yes` does it" in done.err
    with opened(url) as log:
        assert is_loaded(log)


def test_a_chunk_that_is_put_back_is_loaded_and_its_hole_goes(shell: Shell, url: str, store: FakeChunkStore) -> None:
    done = shell.ok("dlq", "replay", "--log", url, "--partition", 1, "--offset", 0, "--yes")
    assert "1 put back" in done.err
    with opened(url) as log:
        load(log, store)
    assert store.rows == {KEY: VALUE}
    assert [(hole.start_ms, hole.record_offset) for hole in store.hole_list] == [(0, 1)]


def test_a_chunk_that_fails_again_keeps_a_hole(shell: Shell, url: str, store: FakeChunkStore) -> None:
    shell.ok("dlq", "replay", "--log", url, "--partition", 1, "--offset", 1, "--yes")
    with opened(url) as log:
        load(log, store)
    assert [(hole.start_ms, hole.record_offset) for hole in store.hole_list] == [(3 * WINDOW_MS, 0), (0, 2)]
    rows = shell.ok("dlq", "ls", "--log", url, "--output", "json").json["dead_letters"]
    assert rows[-1]["from"] == "chunks/1@2"


def test_dead_letters_are_dropped_up_to_one(shell: Shell, url: str, store: FakeChunkStore) -> None:
    drop = ("dlq", "drop", "--log", url, "--partition", 1, "--through", 0)
    assert "1 would be dropped" in shell.ok(*drop).err
    with opened(url) as log:
        assert log.watermarks(CHUNKS_DLQ, [1])[1].low == 0
    assert "1 dropped" in shell.ok(*drop, "--yes").err
    rows = shell.ok("dlq", "ls", "--log", url, "--output", "json").json["dead_letters"]
    assert [row["offset"] for row in rows] == [1]


@pytest.mark.parametrize(
    "arguments",
    [("show", "--partition", 1, "--offset", 99), ("replay", "--offset", 0), ("ls", "--partition", 9)],
)
def test_what_is_not_there_is_a_misuse(
    shell: Shell, url: str, store: FakeChunkStore, arguments: tuple[object, ...]
) -> None:
    assert shell.run("dlq", *arguments, "--log", url).code == 2


def test_a_letter_without_a_story_or_value_is_not_put_back(shell: Shell, url: str) -> None:
    with opened(url) as log:
        log.append_sync(CHUNKS_DLQ, 0, b"?", key=b"?")
    done = shell.run("dlq", "replay", "--log", url, "--yes")
    assert done.code == 1
    assert "does not say where it came from" in done.err
    large = [("dlq-topic", CHUNKS.encode()), ("dlq-value-omitted-bytes", b"9000000")]
    with opened(url) as log:
        log.append_sync(CHUNKS_DLQ, 1, None, key=b"?", headers=large)
    done = shell.run("dlq", "replay", "--log", url, "--partition", 1, "--yes")
    assert done.code == 1
    assert "too large to keep its value" in done.err


class Everything:
    """GroupListener that reads all from the start."""

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(committed, 0)

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """No effect: there is no commit to make."""

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """No effect: there is no work to drop."""


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """Topics of another program's parallel consumer."""
    url = f"sqlite:///{tmp_path}/orders.db"
    with open_topics(url) as admin:
        for topic in ("orders", "orders.dlq"):
            admin.create(replace(topic_specs(2)[3], name=topic))
    return url


def test_any_topics_dead_letters_go_back_with_key_headers_and_partition(shell: Shell, orders: str) -> None:
    story = FailureDetails("exception", ValueError("spoilt"), 1, 0, 5)
    records = [
        Record("orders", 1, 7, b"\x00key", b"value", 1, [("h", b"\xff\x00"), ("h", b"")]),
        Record("orders", 0, 2**31 + 5, None, None, 1, []),
    ]
    with opened(orders) as log:
        for record in records:
            letter = dead_letter("orders.dlq", record, story)
            log.append_sync("orders.dlq", letter.partition, letter.value, key=letter.key, headers=letter.headers)
    found = shell.ok("dlq", "ls", "--log", orders, "--topic", "orders.dlq", "--output", "json").json["dead_letters"]
    assert {row["from"] for row in found} == {"orders/1@7", f"orders/0@{2**31 + 5}"}
    assert "2 put back" in shell.ok("dlq", "replay", "--log", orders, "--topic", "orders.dlq", "--yes").err
    with opened(orders) as log:
        (first,), (second,) = (list(read_to_end(log, "orders", partition)) for partition in (1, 0))
        assert (first.key, first.value, list(first.headers)) == (b"\x00key", b"value", list(records[0].headers))
        assert second.value is None
        assert not second.headers
    one = ("dlq", "drop", "--log", orders, "--topic", "orders.dlq", "--partition", 0, "--through", 0, "--yes")
    assert "1 dropped" in shell.ok(*one).err


def test_a_record_without_a_key_is_told_from_one_with_an_empty_key() -> None:
    story = FailureDetails("exception", None, 1, 0, 5)
    for key in (None, b""):
        letter = dead_letter("dlq", Record("orders", 0, 1, key, b"v"), story)
        told = {name.removeprefix(PREFIX): value.decode() for name, value in letter.headers}
        assert DeadLetter(0, 0, 0, letter.key or b"", letter.value, told, []).origin().key == key


def test_live_commits_are_decoded(shell: Shell, orders: str) -> None:
    with opened(orders) as log:
        for number in range(10):
            log.append_sync("orders", 1, b"%d" % number)
        runs = np.array([[5, 7], [8, 10]], np.int64)
        progress = CommitMetadata(runs, [AttemptCounts(3, failures=2), AttemptCounts(4, crashes=1, running=True)])
        text = encode_metadata(3, progress, log.topic_id("orders"))
        with log.group("billing") as member:
            member.join(["orders"], Everything())
            member.poll(0.0)
            member.commit({("orders", 1): Position(3, text), ("orders", 0): Position(0, "of another tool")})
    done = shell.ok("dlq", "inspect", "billing", "--log", orders, "--topic", "orders", "--output", "json").json
    other, ours = done["partitions"]
    assert other["metadata"].startswith("malformed")
    assert (ours["position"], ours["end"], ours["lag"], ours["finished_above"]) == (3, 10, 7, 4)
    assert ours["runs"] == [[5, 7], [8, 10]]
    assert ours["tried"] == [
        {"offset": 4, "span": 1, "failures": 0, "crashes": 1, "running": True},
        {"offset": 3, "span": 1, "failures": 2, "crashes": 0, "running": False},
    ]
    assert "malformed" in shell.ok("dlq", "inspect", "billing", "--log", orders, "--topic", "orders").text
    nobody = shell.ok("dlq", "inspect", "nobody", "--log", orders, "--topic", "orders", "--output", "json").json
    assert [row["metadata"] for row in nobody["partitions"]] == ["no commit"] * 2


def test_of_columns_the_stretch_that_was_tried_as_one_is_shown(shell: Shell, orders: str) -> None:
    with opened(orders) as log:
        progress = CommitMetadata(
            attempts=[AttemptCounts(2, crashes=1, running=True, span=30), AttemptCounts(40, failures=3)]
        )
        text = encode_metadata(2, progress, log.topic_id("orders"))
        with log.group("columns") as member:
            member.join(["orders"], Everything())
            member.poll(0.0)
            member.commit({("orders", 0): Position(2, text)})
    asked = ("dlq", "inspect", "columns", "--log", orders, "--topic", "orders")
    ours, _ = shell.ok(*asked, "--output", "json").json["partitions"]
    assert ours["tried"] == [
        {"offset": 2, "span": 30, "failures": 0, "crashes": 1, "running": True},
        {"offset": 40, "span": 1, "failures": 3, "crashes": 0, "running": False},
    ]
    assert (ours["tried_in_all"], ours["tried_offsets"]) == (2, 31)
    (row,) = [line.split() for line in shell.ok(*asked).text.splitlines() if line.startswith("orders") and "ok" in line]
    assert row[-2:] == ["31", "ok"]
