"""Metadata of families: written when new or changed, bounded, and read back whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.counters import sample
from support.fakes.fake_log import FakeLog, Fault
from support.servers.logs import LogFactory
from tsdb.log.interface import METADATA
from tsdb.log.metadata import MetadataWriter, decode_family, encode_family, read_metadata
from tsdb.model.clock import ManualClock, SystemClock
from tsdb.model.errors import CorruptData, Unavailable, UnknownVersion
from tsdb.model.family import NAME_BYTES_MAX, TEXT_BYTES_MAX, Family

UP = Family("up", "gauge", "Is it up?", "")


def counted(result: str) -> float:
    return sample("tsdb_ingest_metadata_total", result=result)


def fake(families_max: int = 100) -> tuple[FakeLog, MetadataWriter, ManualClock]:
    clock = ManualClock()
    log = FakeLog(1, clock)
    return log, MetadataWriter(log, clock, families_max), clock


def test_a_gateway_that_starts_again_writes_nothing_that_the_topic_has(tmp_path: Path) -> None:
    changed = Family("up", "gauge", "Another text.", "")
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(1)
        log = factory.open()
        MetadataWriter(log, SystemClock()).write([UP, Family("größe", "counter", "Ünits", "bytes")])
        log.flush(5.0)
        again = MetadataWriter(log, SystemClock())
        again.start()
        before = counted("written")
        again.write([UP])
        log.flush(5.0)
        assert counted("written") == before
        again.write([changed])
        log.flush(5.0)
        found = read_metadata(log)
    assert found == {"up": changed, "größe": Family("größe", "counter", "Ünits", "bytes")}


def test_what_the_log_refuses_is_written_with_the_next_request() -> None:
    log, writer, clock = fake()
    log.plan = lambda topic, partition, value: Fault(Unavailable("away"))
    before = counted("failed")
    writer.write([UP])
    assert (counted("failed"), log.of(METADATA)) == (before + 1, [])
    log.plan = lambda topic, partition, value: None
    clock.advance(1)
    writer.write([UP])
    assert len(log.of(METADATA)) == 1


def test_two_senders_that_disagree_write_once_a_minute() -> None:
    log, writer, clock = fake()
    for second in range(120):
        writer.write([Family("up", "gauge", f"text {second % 2}")])
        clock.advance(1000)
    assert len(log.of(METADATA)) <= 3


def test_texts_are_cut_and_long_names_dropped() -> None:
    log, writer, _ = fake()
    before = counted("dropped")
    writer.write([Family("m", "gauge", "ü" * TEXT_BYTES_MAX), Family("n" * (NAME_BYTES_MAX + 1), "gauge"), Family("o")])
    (stored,) = log.of(METADATA)
    assert len(decode_family("m", stored.value).help.encode()) == TEXT_BYTES_MAX
    assert counted("dropped") == before + 1


def test_families_above_the_bound_are_dropped() -> None:
    log, writer, _ = fake()
    before = counted("dropped")
    writer.write([Family(f"m{number}", "gauge") for number in range(105)])
    assert (len(log.of(METADATA)), counted("dropped")) == (100, before + 5)


def test_values_round_trip_and_bad_ones_are_named() -> None:
    assert decode_family("up", encode_family(UP)) == UP
    for value in (b"", b"[]", b"{}", b'{"version": 1}', b"\xff"):
        with pytest.raises(CorruptData, match="up"):
            decode_family("up", value)
    with pytest.raises(UnknownVersion, match="version 2"):
        decode_family("up", b'{"version": 2}')
