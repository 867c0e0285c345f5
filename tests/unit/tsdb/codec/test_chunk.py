"""Chunks: golden files, parts, and the decoder's errors for broken bytes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from support.data.chunk_cases import (
    MINUTE_MS,
    START_MS,
    WINDOW_MS,
    arrays,
    assert_same,
    fragment,
    fragments,
    samples_of,
)
from support.data.column_cases import GOLDEN
from support.oracles.record_twin import crc32c
from tsdb.codec.chunk import chunk_kernels as kernels
from tsdb.codec.chunk.chunk import PART_BYTES_MIN, SAMPLES_MAX, VERSION, Fragment, decode_chunk, encode_chunk
from tsdb.model.errors import CorruptData, UnknownVersion

FOLDER = GOLDEN / "v1/chunk"
NAMES = sorted(fragments())


def encode(of: Fragment) -> bytes:
    (value,) = encode_chunk(of, window_ms=WINDOW_MS)
    return value


def sealed(body: bytes) -> bytes:
    return body + crc32c(body).to_bytes(4, "little")


def stored(name: str) -> tuple[Fragment, bytes]:
    claims = json.loads((FOLDER / f"{name}.json").read_text())
    return (
        Fragment(
            claims["pack_id"],
            claims["window_start_ms"],
            np.array(claims["series_id"], np.uint64),
            np.array(claims["sample_start"], np.int64),
            np.array(claims["ts_ms"], np.int64),
            np.array(claims["value_bits"], np.int64).view(np.float64),
            np.array(claims["order"], np.int64),
        ),
        (FOLDER / f"{name}.chunk").read_bytes(),
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_chunk_decodes_to_its_recorded_samples(name: str) -> None:
    want, value = stored(name)
    assert_same(decode_chunk(value), want)


@pytest.mark.parametrize("name", NAMES)
def test_a_fragment_is_encoded_to_the_stored_bytes(name: str) -> None:
    # Chunks are compared by their bytes: an encoder that chooses otherwise is a new codec version.
    want, value = stored(name)
    assert_same(fragments()[name], want)
    assert encode(want) == value


@pytest.mark.parametrize("name", NAMES)
def test_bytes_do_not_depend_on_how_the_arrays_lie_in_memory(name: str) -> None:
    given = fragments()[name]
    moved = Fragment(
        given.pack_id,
        given.window_start_ms,
        np.repeat(given.series_id, 2)[::2],
        np.repeat(given.sample_start, 2)[::2],
        np.repeat(given.ts_ms, 2)[::2],
        np.repeat(given.value, 2)[::2],
        np.repeat(given.order, 2)[::2],
    )
    assert encode(moved) == encode(given)


@pytest.mark.parametrize("name", NAMES)
def test_any_flipped_byte_and_any_cut_is_corrupt(name: str) -> None:
    value = encode(fragments()[name])
    for at in range(len(value)):
        for mask in (1, 0x80, 0xFF):
            broken = bytearray(value)
            broken[at] ^= mask
            with pytest.raises(CorruptData):
                decode_chunk(bytes(broken))
        with pytest.raises(CorruptData):
            decode_chunk(value[:at])
    with pytest.raises(CorruptData):
        decode_chunk(value + b"\0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["late", "base_many_axes", "one_sample"])
def test_broken_bytes_under_a_right_checksum_never_do_harm(name: str) -> None:
    body = encode(fragments()[name])[:-4]
    for at in range(len(body)):
        for value in (0, 1, 0x7F, 0x80, 0xFF, body[at] ^ 1, body[at] ^ 0x40):
            try:
                decoded = decode_chunk(sealed(body[:at] + bytes([value]) + body[at + 1 :]))
            except (CorruptData, UnknownVersion):
                continue
            assert 0 < decoded.samples <= SAMPLES_MAX
            assert (np.diff(decoded.series_id.astype(object)) > 0).all()
            for start, end in zip(decoded.sample_start[:-1], decoded.sample_start[1:], strict=True):
                assert (np.diff(decoded.ts_ms[start:end]) > 0).all()


def test_a_newer_version_or_codec_is_named() -> None:
    body = encode(fragments()["late"])[:-4]
    for at in (1, 2):
        with pytest.raises(UnknownVersion, match=f"knows {VERSION}"):
            decode_chunk(sealed(body[:at] + b"\x09" + body[at + 1 :]))
    with pytest.raises(CorruptData, match="begins with"):
        decode_chunk(sealed(b"\x00" + body[1:]))


def test_a_chunk_cannot_claim_more_samples_than_the_limit() -> None:
    # Two series of one regular axis: each takes a few bytes however long it is.
    length = SAMPLES_MAX // 2 + 1
    axis = kernels.MAGIC.to_bytes(1, "little") + bytes([VERSION, kernels.CODEC]) + (7).to_bytes(8, "little")
    header = axis + varint(1 << 40) + varint(0) + varint(2) + varint(1)
    ids = (1).to_bytes(8, "little") + (2).to_bytes(8, "little")
    regular = bytes([0]) + varint(0) + varint(2)
    body = header + ids + varint(length) + varint(len(regular)) + regular + varint(1) + varint(0) + varint(1) + b"\0\0"
    with pytest.raises(CorruptData, match=f"over {SAMPLES_MAX} samples"):
        decode_chunk(sealed(body))


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def many_series(count: int, samples: int) -> Fragment:
    rng = np.random.Generator(np.random.PCG64(3))
    ts_ms = START_MS + MINUTE_MS * np.arange(samples)
    return fragment([(i * 5, ts_ms, rng.random(samples), [9] * samples) for i in range(count)])


def test_parts_are_cut_at_series_and_hold_everything_once() -> None:
    given = many_series(40, 60)
    parts = encode_chunk(given, window_ms=WINDOW_MS, part_bytes_max=4096)
    assert len(parts) > 3
    assert max(map(len, parts)) <= 4096
    decoded = [decode_chunk(part) for part in parts]
    ids = np.concatenate([part.series_id for part in decoded])
    np.testing.assert_array_equal(ids, given.series_id)
    assert samples_of(decoded) == samples_of([given])


def test_a_series_that_alone_is_too_large_is_halved_until_it_fits() -> None:
    given = many_series(3, 200)
    parts = encode_chunk(given, window_ms=WINDOW_MS, part_bytes_max=PART_BYTES_MIN)
    assert max(map(len, parts)) <= PART_BYTES_MIN
    decoded = [decode_chunk(part) for part in parts]
    assert {part.series for part in decoded} == {1}
    assert samples_of(decoded) == samples_of([given])
    assert parts == encode_chunk(given, window_ms=WINDOW_MS, part_bytes_max=PART_BYTES_MIN)


def test_a_chunk_of_few_bytes_and_very_many_samples_is_cut_too() -> None:
    count = SAMPLES_MAX + 3
    ts_ms, zeros = np.arange(count, dtype=np.int64) + START_MS, np.zeros(count)
    starts = np.array([0, 1, count], np.int64)
    given = Fragment(7, START_MS, np.array([1, 2], np.uint64), starts, ts_ms, zeros, np.ones(count, np.int64))
    parts = [decode_chunk(part) for part in encode_chunk(given, window_ms=WINDOW_MS)]
    assert [part.samples for part in parts] == [1, (count - 1) // 2, count - 1 - (count - 1) // 2]


def test_part_of_a_fragment_is_its_own_fragment() -> None:
    given = many_series(5, 7)
    (value,) = encode_chunk(given.part(1, 3), window_ms=WINDOW_MS)
    ids, *_ = arrays(decode_chunk(value))
    assert ids.tolist() == [5, 10]
