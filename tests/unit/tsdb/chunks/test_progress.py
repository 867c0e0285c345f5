"""Commit metadata of the chunk stage: it round-trips, and foreign metadata is refused by name."""

from __future__ import annotations

import pytest

from tsdb.chunks.progress import Progress, decode_commit, encode_progress
from tsdb.codec.chunk.marker import ALWAYS_WHOLE_MS
from tsdb.codec.crc32c import crc32c
from tsdb.log.interface import METADATA_UNITS_MAX
from tsdb.model.errors import CorruptData, TsdbError, UnknownVersion, WrongTopic

TOPIC = "Jx9_aTopicIdOf22Chars0"


def sealed(text: str) -> str:
    return f"{text} {crc32c(text.encode()):08x}"


@pytest.mark.parametrize(
    "progress",
    [Progress(0, 0), Progress(2**53, 1_700_000_000_000, 1_700_000_400_000), Progress(5, -7, ALWAYS_WHOLE_MS)],
)
def test_progress_comes_back_from_a_commit(progress: Progress) -> None:
    metadata = encode_progress(progress, TOPIC)
    assert len(metadata) < METADATA_UNITS_MAX
    assert decode_commit(progress.position, metadata, TOPIC) == progress


def test_the_metadata_is_as_documented() -> None:
    assert encode_progress(Progress(9, 400, 800), "t") == sealed("1 t 400 800")


@pytest.mark.parametrize(
    ("metadata", "kind", "reason"),
    [
        ("", CorruptData, "commit_corrupt"),
        ("written by hand", CorruptData, "commit_corrupt"),
        (sealed(f"1 {TOPIC} 400"), CorruptData, "commit_corrupt"),
        (sealed(f"1 {TOPIC} 400 x"), CorruptData, "commit_corrupt"),
        (sealed(f"2 {TOPIC} 400 800"), UnknownVersion, "commit_version"),
        (sealed("1 another 400 800"), WrongTopic, "commit_topic"),
    ],
)
def test_a_foreign_commit_is_refused(metadata: str, kind: type[TsdbError], reason: str) -> None:
    with pytest.raises(kind) as refused:
        decode_commit(17, metadata, TOPIC)
    assert refused.value.reason == reason
    assert "17" in refused.value.message


def test_any_changed_character_is_corrupt() -> None:
    metadata = encode_progress(Progress(9, 400, 800), TOPIC)
    for at in range(len(metadata)):
        with pytest.raises((CorruptData, UnknownVersion, WrongTopic)) as refused:
            decode_commit(9, metadata[:at] + ("0" if metadata[at] != "0" else "1") + metadata[at + 1 :], TOPIC)
        assert refused.value.reason == "commit_corrupt"
