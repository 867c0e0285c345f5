"""Commit metadata: capacity, and refusals with their reason."""

from __future__ import annotations

import base64
import random
import zlib

import numpy as np
import pytest
import zstandard

from tsdb.parallel_consumer.errors import MetadataRefused
from tsdb.parallel_consumer.offsets.attempt_history import AttemptHistory, rows_at_once
from tsdb.parallel_consumer.offsets.metadata import (
    AttemptCounts,
    CommitMetadata,
    decode_metadata,
    encode_metadata,
    map_bytes_max,
)
from tsdb.parallel_consumer.offsets.runs import OffsetEncoding, decode_runs
from tsdb.parallel_consumer.offsets.tracker import OffsetTracker
from tsdb.parallel_consumer.options import UNITS_MAX

TOPIC_ID = "AbCdEfGhIjKlMnOpQrStUv"


def tracked(count: int, unfinished: set[int], *, first: int = 1_000_000) -> OffsetTracker:
    tracker = OffsetTracker(first)
    slots = [tracker.add(first + number) for number in range(count)]
    for number, slot in enumerate(slots):
        assert slot is not None
        if number not in unfinished:
            tracker.finish(slot)
    return tracker


def text_of(tracker: OffsetTracker) -> str:
    return encode_metadata(tracker.position, CommitMetadata(tracker.finished_runs()), TOPIC_ID)


def sealed(position: int, body: bytes) -> str:
    crc = zlib.crc32(body, zlib.crc32(position.to_bytes(8, "little")))
    return base64.b64encode(body + crc.to_bytes(4, "little")).decode()


def test_50_000_tracked_with_2_000_scattered_unfinished_fit_as_plain_text() -> None:
    scattered = {0, *random.Random(1).sample(range(1, 50_000), 1_999)}
    tracker = tracked(50_000, scattered)
    text = text_of(tracker)
    assert text.isascii()
    assert len(text) <= UNITS_MAX
    restored = decode_metadata(tracker.position, text, TOPIC_ID).finished
    assert (restored == tracker.finished_runs()).all()


def test_any_pattern_of_50_000_fits() -> None:
    source = random.Random(2)
    tracker = tracked(50_000, {0, *(number for number in range(50_000) if source.random() < 0.5)})
    assert tracker.admits(1_050_000, map_bytes_max())
    assert len(text_of(tracker).encode("utf-16-le")) // 2 <= UNITS_MAX


def test_intake_ends_before_a_map_could_outgrow_its_room() -> None:
    tracker = OffsetTracker(0)
    offset = 0
    while tracker.admits(offset, map_bytes_max()):
        tracker.add(offset)
        offset += 1
    assert 50_000 < offset < 52_000


def test_a_record_far_ahead_is_admitted_once_nothing_is_unfinished() -> None:
    tracker = OffsetTracker(0)
    slots = [tracker.add(offset) for offset in range(2_000)]
    assert not tracker.admits(1 << 40, map_bytes_max())
    for slot in slots:
        assert slot is not None
        tracker.finish(slot)
    assert tracker.admits(1 << 40, map_bytes_max())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hello, I was here first", "malformed"),
        ("AAAA", "malformed"),
        ("\u4e00\u4e01x", "malformed"),
        ("\u8dff\u8dff", "malformed"),
        (sealed(10, bytes((3, 0, 0, 0))), "unknown_version"),
        (sealed(10, bytes((2, 0, 22)) + TOPIC_ID.encode() + b"\4\0\0\1\0"), "malformed"),
        (sealed(10, bytes((2, 0, 22)) + TOPIC_ID.encode() + b"\3\0\0\1"), "malformed"),
        (sealed(11, bytes((1, 0, 0, 0))), "bad_checksum"),
        (sealed(10, bytes((1, 0, 5)) + b"other" + b"\0"), "wrong_topic"),
        (sealed(10, bytes((1, 0, 200, 0))), "wrong_topic"),
        (sealed(10, bytes((1, 0, 22)) + TOPIC_ID.encode() + b"\x09"), "malformed"),
        (sealed(10, bytes((1, 0, 22)) + TOPIC_ID.encode() + b"\0x"), "malformed"),
        (sealed(10, bytes((1, 7, 22)) + TOPIC_ID.encode() + b"\0x"), "malformed"),
        (sealed(10, bytes((1, 1, 22)) + TOPIC_ID.encode() + b"\0\x80"), "malformed"),
        (sealed(10, bytes((1, 1, 22)) + TOPIC_ID.encode() + b"\0" + b"\xff" * 8 + b"\x7f\x01"), "malformed"),
        (sealed(10, bytes((1, 3, 22)) + TOPIC_ID.encode() + b"\0nonsense"), "malformed"),
    ],
)
def test_untrusted_metadata_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MetadataRefused) as refused:
        decode_metadata(10, text, TOPIC_ID)
    assert refused.value.reason == reason


def test_a_frame_with_a_large_content_size_is_refused_before_unpacking() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    with pytest.raises(MetadataRefused, match="unpacks to"):
        decode_runs(0, OffsetEncoding.BITSET_ZSTD, bomb)


def test_a_flip_of_any_bit_is_noticed() -> None:
    text = text_of(tracked(64, {0, 5, 40}, first=10))
    data = bytearray(base64.b64decode(text))
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MetadataRefused):
            decode_metadata(10, base64.b64encode(bytes(flipped)).decode(), TOPIC_ID)


def test_bytes_of_version_1_stay_as_they_are() -> None:
    runs = np.array([[12, 15], [20, 300]], np.int64)
    text = encode_metadata(10, CommitMetadata(runs, [AttemptCounts(11, failures=2, crashes=1, running=True)]), "id")
    assert text == GOLDEN
    progress = decode_metadata(10, GOLDEN, "id")
    assert (progress.finished == runs).all()
    assert progress.attempts == [AttemptCounts(11, failures=2, crashes=1, running=True)]


def test_attempts_with_a_span_write_version_2_whose_bytes_stay_fixed() -> None:
    runs = np.array([[12, 15], [2000, 3000]], np.int64)
    attempts = [AttemptCounts(11, failures=2), AttemptCounts(15, crashes=1, running=True, span=1_000)]
    text = encode_metadata(10, CommitMetadata(runs, attempts), "id")
    assert text == GOLDEN_SPANS
    progress = decode_metadata(10, GOLDEN_SPANS, "id")
    assert (progress.finished == runs).all()
    assert progress.attempts == attempts


@pytest.mark.parametrize(
    "attempts",
    [[], [AttemptCounts(3, crashes=1)], [AttemptCounts(0, span=5), AttemptCounts(9), AttemptCounts(10, span=90)]],
)
def test_attempts_are_taken_up_to_the_offset_read(attempts: list[AttemptCounts]) -> None:
    whole = {offset: one for one in attempts for offset in range(one.offset, one.end)}
    tried = AttemptHistory(attempts)
    at = 0
    for end in (1, 4, 4, 11, 12, 200):
        found = {offset: one for one in tried.take(at, end) for offset in range(one.offset, one.end)}
        assert found.keys() == {offset for offset in whole if at <= offset < end}
        remaining = [offset for one in tried.remaining(0) for offset in range(one.offset, one.end)]
        assert remaining == sorted(offset for offset in whole if offset >= end)
        at = end
    assert not tried


def test_attempts_below_the_position_are_dropped() -> None:
    assert AttemptHistory([AttemptCounts(1), AttemptCounts(3, span=10), AttemptCounts(20)]).remaining(5) == [
        AttemptCounts(5, span=8),
        AttemptCounts(20),
    ]


@pytest.mark.parametrize("crashes_max", [2, 3, 4, 6])
@pytest.mark.parametrize("rows", [1, 2, 7, 1_000, 10_000])
def test_a_row_runs_alone_at_its_last_allowed_crash(crashes_max: int, rows: int) -> None:
    for crashes in range(1, crashes_max):
        rows = rows_at_once(rows, crashes, crashes_max)
    assert rows == 1
    assert rows_at_once(1_000, 0, crashes_max) == rows_at_once(1_000, 5, None) == 1_000


GOLDEN_SPANS = "AgECaWQJAQQAAQUBAegHAgPBD+gHnxJGtA=="
GOLDEN = "AQECaWQDAQUBAgMFmAK5a2Y1"
