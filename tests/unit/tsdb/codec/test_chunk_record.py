"""Keys, markers and holes of the chunks topic: golden bytes, and the decoder's errors for broken ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.data.column_cases import GOLDEN
from support.oracles.record_twin import crc32c
from tsdb.codec.chunk.key import ChunkKey, HoleKey, Kind, ProgressKey, RecordKey, WindowKey, decode_key, encode_key
from tsdb.codec.chunk.marker import (
    HoleRecord,
    ProgressMarker,
    WindowMarker,
    decode_hole,
    decode_progress_marker,
    decode_window_marker,
    encode_hole,
    encode_progress_marker,
    encode_window_marker,
)
from tsdb.model.errors import CorruptData, UnknownVersion

STORED: dict[str, Any] = json.loads((GOLDEN / "v1/chunk_record/records.json").read_text())
STORED["values"] |= json.loads((GOLDEN / "v2/chunk_record/progress.json").read_text())["values"]
KEYS: dict[str, RecordKey] = {
    "base": ChunkKey(2**64 - 1, 1_700_000_000_000 // 14_400_000 * 14_400_000, Kind.BASE, 123_456, 0),
    "late": ChunkKey(1, -14_400_000, Kind.LATE, 0, 2**32 - 1),
    "import": ChunkKey(0, 0, Kind.IMPORT, 2**53, 1),
    "folded": ChunkKey(5, 30_000, Kind.FOLDED, 9, 0),
    "window": WindowKey(1_699_992_000_000),
    "progress": ProgressKey(),
    "hole": HoleKey(7, -(1 << 60), 1_700_000_000_000, 42),
}
MARKERS: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "window": (WindowMarker(123_456, 5, 6, 2**40), encode_window_marker, decode_window_marker),
    "progress": (
        ProgressMarker("tøpic", 2**40, 1_699_992_000_000, 77),
        encode_progress_marker,
        decode_progress_marker,
    ),
    "progress with whole_from": (
        ProgressMarker("tøpic", 2**40, 1_699_992_000_000, 77, 1_700_006_400_000),
        encode_progress_marker,
        decode_progress_marker,
    ),
    "hole": (HoleRecord(17, 7, -(1 << 60), 1_700_000_000_000, "corrupt_record", 42), encode_hole, decode_hole),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_has_the_stored_bytes_and_they_give_it_back(name: str) -> None:
    assert encode_key(KEYS[name]).hex() == STORED["keys"][name]
    assert decode_key(bytes.fromhex(STORED["keys"][name])) == KEYS[name]


@pytest.mark.parametrize("data", [b"", b"\0", b"\x05", b"\x01" * 29, b"\x02" * 8, b"\x03\x03", b"\x04" * 34])
def test_bytes_of_no_key_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_key(data)


def test_an_invalid_kind_or_order_is_corrupt() -> None:
    key = bytearray(encode_key(KEYS["base"]))
    for at, value in ((17, 4), (25, 0x80)):
        broken = key.copy()
        broken[at] = value
        with pytest.raises(CorruptData):
            decode_key(bytes(broken))


@pytest.mark.parametrize("name", MARKERS)
def test_a_marker_has_the_stored_bytes_and_they_give_it_back(name: str) -> None:
    marker, encode, decode = MARKERS[name]
    assert encode(marker).hex() == STORED["values"][name]
    assert decode(bytes.fromhex(STORED["values"][name])) == marker


@pytest.mark.parametrize("name", MARKERS)
def test_broken_markers_are_corrupt_and_newer_ones_named(name: str) -> None:
    _, _, decode = MARKERS[name]
    value = bytes.fromhex(STORED["values"][name])
    for at in range(len(value)):
        broken = bytearray(value)
        broken[at] ^= 0x10
        for data in (bytes(broken), value[:at]):
            with pytest.raises(CorruptData):
                decode(data)
    body = b"\x03" + value[1:-4]
    with pytest.raises(UnknownVersion):
        decode(body + crc32c(body).to_bytes(4, "little"))


@pytest.mark.parametrize("name", ["progress", "progress with whole_from", "hole"])
def test_text_that_is_not_utf_8_or_too_long_is_corrupt(name: str) -> None:
    _, _, decode = MARKERS[name]
    value = bytes.fromhex(STORED["values"][name])
    for body in (value[:-5] + b"\xff", value[:-4] + b"x" * 256, value[:10]):
        with pytest.raises(CorruptData):
            decode(body + crc32c(body).to_bytes(4, "little"))
