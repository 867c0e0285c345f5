"""Chunks with a cover: golden file, round trips, and the decoder's errors for broken bytes."""

from __future__ import annotations

import json

import pytest

from support.data.chunk_cases import START_MS, WINDOW_MS, assert_same, fragments
from support.data.column_cases import GOLDEN
from support.oracles.record_twin import crc32c
from tsdb.codec.chunk.chunk import decode_chunk, decode_cover, encode_chunk
from tsdb.codec.chunk.cover import COVERED_KEYS_MAX, Cover, add_cover, cover_bytes_max
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.model.errors import CorruptData

FOLDER = GOLDEN / "v2/chunk"
KEYS = [
    ChunkKey(7, START_MS, Kind.BASE, 9_000_000_000, 0),
    ChunkKey(7, START_MS, Kind.BASE, 9_000_000_000, 1),
    ChunkKey(7, START_MS, Kind.LATE, 9_000_000_000, 0),
    ChunkKey(7, START_MS, Kind.IMPORT, 2**53, 2**32 - 1),
    ChunkKey(7, START_MS, Kind.FOLDED, 2**63 - 1, 300),
]


def chunk_of(name: str = "late") -> bytes:
    (value,) = encode_chunk(fragments()[name], window_ms=WINDOW_MS)
    return value


def key(order: int) -> ChunkKey:
    return ChunkKey(7, START_MS, Kind.LATE, order, 0)


def sealed(body: bytes) -> bytes:
    return body + crc32c(body).to_bytes(4, "little")


def with_cover_bytes(cover: bytes) -> bytes:
    """A chunk whose cover is exactly these bytes, under a right checksum."""
    body = bytearray(chunk_of()[:-4])
    body[1] = 2
    return sealed(bytes(body) + cover + len(cover).to_bytes(4, "little"))


def test_the_golden_fold_decodes_to_its_recorded_samples_and_encodes_to_its_bytes() -> None:
    value, claims = (FOLDER / "folded.chunk").read_bytes(), json.loads((FOLDER / "folded.json").read_text())
    want = tuple(ChunkKey(7, START_MS, Kind(kind), order, part) for order, kind, part in claims["keys"])
    assert decode_cover(value) == Cover(claims["parts"], want)
    assert_same(decode_chunk(value), fragments()[claims["fragment"]])
    assert add_cover(chunk_of(claims["fragment"]), Cover(claims["parts"], want)) == value


@pytest.mark.parametrize("name", sorted(fragments()))
def test_a_cover_leaves_the_samples_as_they_are(name: str) -> None:
    value = add_cover(chunk_of(name), Cover.of(3, [key(5)]))
    assert_same(decode_chunk(value), fragments()[name])


def test_a_chunk_without_a_cover_has_none() -> None:
    assert decode_cover(chunk_of()) is None


def test_keys_come_back_each_once_and_in_order() -> None:
    value = add_cover(chunk_of(), Cover.of(2, [*KEYS[::-1], KEYS[0]]))
    assert decode_cover(value) == Cover(2, tuple(KEYS))


def test_as_many_keys_as_may_be_fit_the_bytes_that_were_reckoned() -> None:
    many = [ChunkKey(7, START_MS, Kind.LATE, 2**62 + 2**40 * at, 2**32 - 1) for at in range(COVERED_KEYS_MAX)]
    value = add_cover(chunk_of(), Cover.of(1, many))
    found = decode_cover(value)
    assert found is not None
    assert found.keys == tuple(many)
    assert len(value) - len(chunk_of()) <= cover_bytes_max(len(many))


def test_any_flipped_byte_and_any_cut_is_corrupt() -> None:
    value = add_cover(chunk_of(), Cover.of(1, KEYS))
    for at in range(len(value)):
        for mask in (1, 0x80, 0xFF):
            broken = bytearray(value)
            broken[at] ^= mask
            for decode in (decode_chunk, decode_cover):
                with pytest.raises(CorruptData):
                    decode(bytes(broken))
        with pytest.raises(CorruptData):
            decode_cover(value[:at])


def test_broken_covers_under_a_right_checksum_never_do_harm() -> None:
    body = add_cover(chunk_of(), Cover.of(1, KEYS))[:-4]
    for at in range(len(chunk_of()) - 4, len(body)):
        for byte in (0, 1, 0x7F, 0x80, 0xFF, body[at] ^ 1, body[at] ^ 0x40):
            try:
                found = decode_cover(sealed(body[:at] + bytes([byte]) + body[at + 1 :]))
            except CorruptData:
                continue
            assert found is not None
            assert 0 < len(found.keys) <= COVERED_KEYS_MAX


@pytest.mark.parametrize(
    ("cover", "why"),
    [
        (b"", "does not fit"),
        (b"\x00\x01\x05\x01\x00", "1 keys and 0 parts"),
        (b"\x01\x00", "0 keys"),
        (b"\x01\x02\x05\x01\x00", "2 keys"),
        (b"\x01\x81\x40" + b"\x01\x01\x00" * 3, "at most 8192"),
        (b"\x01\x01\x05\x04\x00", "kind 4"),
        (b"\x01\x02\x05\x01\x00\x00\x01\x00", "out of order"),
        (b"\x01\x01\x05\x01\x00\x00", "1 bytes too many"),
        (b"\x01\x01\x05\x01\x80", "cut"),
        (b"\x01\x01" + b"\xff" * 10 + b"\x01\x00", "an endless number"),
        (b"\x01\x01\x05\x01\xff\xff\xff\xff\x1f", "at most 4294967295"),
        (b"\x01\x02" + b"\xff" * 8 + b"\x7f\x00\x00\x01\x00\x00", "at most 0"),
    ],
)
def test_an_invalid_cover_is_corrupt_with_the_reason(cover: bytes, why: str) -> None:
    with pytest.raises(CorruptData, match=why) as refused:
        decode_cover(with_cover_bytes(cover))
    assert refused.value.reason == "corrupt_chunk"
