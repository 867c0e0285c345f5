"""`tsdb dlq`: dead letters are shown, put back with their hole taken back, and dropped; never without --yes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.chunk_topics import WINDOW_MS, append_entries, chunk_entry, chunk_value
from support.cli import Shell
from support.fake_chunk_store import FakeChunkStore
from support.loaders import OPTIONS, is_loaded
from support.logs import LogFactory, wait_until
from tsdb.codec.chunk_key import ChunkKey, Kind
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, Log
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import PRODUCTION

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
    assert loader.join(20.0)


@pytest.fixture
def store(url: str) -> FakeChunkStore:
    """After a loader that found a chunk too large, and one that is garbage."""
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
