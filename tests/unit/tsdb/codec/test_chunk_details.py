"""Chunks with details: golden files, parts, covers, and the decoder's errors for broken bytes."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from support.data.chunk_cases import START_MS, WINDOW_MS, assert_same, fragment, fragments
from support.data.column_cases import GOLDEN
from support.data.detail_cases import WIDE, detailed, detailed_fragments, histograms, joined_of
from support.oracles.record_twin import crc32c
from tsdb.codec.chunk.chunk import PART_BYTES_MIN, SAMPLES_MAX, Fragment, decode_chunk, decode_cover, encode_chunk
from tsdb.codec.chunk.cover import Cover, add_cover
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.sections import add_details
from tsdb.codec.columns.details import SHAPE_BUCKETS_MAX, EncodedDetails, Tag, is_storable
from tsdb.model.details import SampleDetails, joined_details, same_details
from tsdb.model.errors import CorruptData, UnknownVersion
from tsdb.model.histograms import HistogramColumns, HistogramShape

FOLDER = GOLDEN / "v3/chunk"
NAMES = sorted(detailed_fragments())
COVER = Cover.of(3, [ChunkKey(7, START_MS, Kind.LATE, 5, 0)])


def encode(of: Fragment) -> bytes:
    (value,) = encode_chunk(of, window_ms=WINDOW_MS)
    return value


def sealed(body: bytes) -> bytes:
    return body + crc32c(body).to_bytes(4, "little")


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_chunk_decodes_to_its_samples_and_they_encode_to_its_bytes(name: str) -> None:
    value = (FOLDER / f"{name}.chunk").read_bytes()
    given = detailed_fragments()[name]
    assert value[1] == 3
    assert encode(given) == value
    got = decode_chunk(value)
    assert_same(got, given)
    assert same_details(got.details, given.details)


def test_a_golden_chunk_has_the_details_that_are_written_beside_it() -> None:
    claims = json.loads((FOLDER / "native_and_starts.json").read_text())
    details = decode_chunk((FOLDER / "native_and_starts.chunk").read_bytes()).details
    assert details is not None
    assert details.start_ms is not None
    assert details.histograms is not None
    assert details.histogram_of is not None
    columns = details.histograms
    assert details.start_ms.tolist() == claims["start_ms"]
    assert details.histogram_of.tolist() == claims["histogram_of"]
    shapes = [[one.schema, one.zero_threshold, one.positive, one.negative, one.bounds] for one in columns.shapes]
    assert json.loads(json.dumps(shapes)) == claims["shapes"]
    assert columns.shape_of.tolist() == claims["shape_of"]
    assert columns.buckets.view(np.int64).tolist() == claims["bucket_bits"]
    assert columns.counts.view(np.int64).tolist() == claims["count_bits"]
    assert columns.zero_counts.view(np.int64).tolist() == claims["zero_count_bits"]
    assert columns.hints.tolist() == claims["hints"]
    assert columns.is_integer.tolist() == claims["is_integer"]


@pytest.mark.parametrize("name", sorted(fragments()))
def test_samples_without_details_are_a_chunk_of_version_1(name: str) -> None:
    assert encode(fragments()[name])[1] == 1
    assert decode_chunk(encode(fragments()[name])).details is None


@pytest.mark.parametrize("name", ["native_and_starts", "native_changing"])
def test_any_flipped_byte_and_any_cut_is_corrupt(name: str) -> None:
    value = add_cover(encode(detailed_fragments()[name]), COVER)
    for at in range(len(value)):
        broken = bytearray(value)
        broken[at] ^= 0xFF
        for damaged in (bytes(broken), value[:at]):
            for decode in (decode_chunk, decode_cover):
                with pytest.raises(CorruptData):
                    decode(damaged)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["native_and_starts", "native_changing", "native_custom", "starts"])
def test_broken_bytes_under_a_right_checksum_never_do_harm(name: str) -> None:
    given = detailed_fragments()[name]
    body = encode(given)[:-4]
    # Bytes before the sections are as in version 1, whose test breaks them.
    for at in range(len(encode(replace(given, details=None))) - 4, len(body)):
        for value in (0, 1, 0x7F, 0x80, 0xFF, body[at] ^ 1, body[at] ^ 0x40):
            try:
                decoded = decode_chunk(sealed(body[:at] + bytes([value]) + body[at + 1 :]))
            except (CorruptData, UnknownVersion):
                continue
            details = decoded.details
            assert details is not None
            columns = details.histograms
            if columns is not None:
                assert details.histogram_of is not None
                assert len(columns.buckets) + decoded.samples <= SAMPLES_MAX
                assert len(columns) == np.count_nonzero(details.histogram_of >= 0)
                widths = np.array([len(shape.indexes) for shape in columns.shapes])
                assert (np.diff(columns.starts) == widths[columns.shape_of]).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_cover_leaves_samples_and_details_as_they_are(name: str) -> None:
    given = detailed_fragments()[name]
    value = add_cover(encode(given), COVER)
    assert value[1] == 3
    assert decode_cover(value) == COVER
    assert decode_cover(encode(given)) is None
    got = decode_chunk(value)
    assert_same(got, given)
    assert same_details(got.details, given.details)


def test_a_flag_of_a_newer_version_is_named() -> None:
    body = bytearray(encode(detailed_fragments()["native"])[:-4])
    body[-1] |= 8
    with pytest.raises(UnknownVersion, match="sections 0xa"):
        decode_chunk(sealed(bytes(body)))


def test_a_chunk_of_version_3_without_details_is_corrupt() -> None:
    body = encode(fragments()["late"])[:-4]
    for flags in (b"\x00", b"\x00\x00\x00\x00\x04"):
        with pytest.raises(CorruptData, match="sections do not fit"):
            decode_chunk(sealed(body[:1] + b"\x03" + body[2:] + flags))


def series_of_histograms(count: int, samples: int) -> Fragment:
    ts_ms = START_MS + 15_000 * np.arange(samples)
    given = fragment([(i * 5, ts_ms, np.zeros(samples), [9] * samples) for i in range(count)])
    return detailed(given, np.arange(count * samples), histograms([0, 1] * (count * samples // 2), 8))


def test_parts_are_cut_at_series_and_hold_all_details_once() -> None:
    given = series_of_histograms(40, 60)
    parts = encode_chunk(given, window_ms=WINDOW_MS, part_bytes_max=4096)
    assert len(parts) > 3
    assert max(map(len, parts)) <= 4096
    decoded = [decode_chunk(part) for part in parts]
    np.testing.assert_array_equal(np.concatenate([part.series_id for part in decoded]), given.series_id)
    assert same_details(joined_of(decoded), given.details)


def test_a_series_that_alone_is_too_large_is_halved_down_to_single_histograms() -> None:
    given = series_of_histograms(1, 64)
    parts = [decode_chunk(part) for part in encode_chunk(given, window_ms=WINDOW_MS, part_bytes_max=PART_BYTES_MIN)]
    assert len(parts) > 10
    assert same_details(joined_of(parts), given.details)


def test_a_part_of_floats_alone_has_version_1() -> None:
    given = series_of_histograms(2, 60)
    assert given.details is not None
    some = joined_details([(60, None), (60, given.details.part(60, 120))])
    value = np.where(np.arange(120) < 60, 1.5, given.value)
    parts = encode_chunk(replace(given, value=value, details=some), window_ms=WINDOW_MS, part_bytes_max=1024)
    assert parts[0][1] == 1
    assert {part[1] for part in parts[1:]} == {3}


def test_bytes_do_not_depend_on_shapes_that_are_not_used_or_on_their_order() -> None:
    given = detailed_fragments()["native_changing"]
    assert given.details is not None
    columns = given.details.histograms
    assert columns is not None
    turned = replace(columns, shapes=columns.shapes[::-1], shape_of=len(columns.shapes) - 1 - columns.shape_of)
    other = replace(given, details=replace(given.details, histograms=turned))
    assert encode(other) == encode(given)


def test_the_widest_sample_fits_a_part() -> None:
    spans = tuple((2, 1) for _ in range(SHAPE_BUCKETS_MAX))
    shape = HistogramShape(8, 1e-9, spans)
    assert is_storable(shape)
    assert not is_storable(HistogramShape(8, 1e-9, (*spans, (2, 1))))
    rng = np.random.Generator(np.random.PCG64(2))
    buckets = rng.random(SHAPE_BUCKETS_MAX)
    ends = np.array([0, SHAPE_BUCKETS_MAX])
    one, none = np.ones(1), np.zeros(1)
    columns = HistogramColumns(
        (shape,), np.zeros(1, np.int32), ends, buckets, one, one, none, np.zeros(1, np.uint8), np.zeros(1, np.bool_)
    )
    given = detailed(fragment([(1, [START_MS], [0.0], [1])]), np.zeros(1, np.int64), columns)
    value = encode(given)
    assert len(value) < 200_000
    assert same_details(decode_chunk(value).details, given.details)


@pytest.mark.parametrize(
    ("section", "why"),
    [
        (b"", "runs of kinds"),
        (bytes([1]), "no sample is a histogram"),
        (bytes([2]), "runs of kinds"),
        (bytes([0, 1]), "cut in a number"),
        (bytes([0, 1, 0]), "0 shapes of 1"),
        (bytes([0, 1, 2, 1]), "2 shapes of 1"),
        (bytes([0, 1, 1, 50]), "a shape is cut"),
        (bytes([0, 1, 1, 11, 18, *bytes(8), 0, 0]), "schema 9"),
        (bytes([0, 1, 1, 11, 0, *bytes(8), 9, 0]), "9 where at most"),
        (bytes([0, 1, 1, 12, 0, *bytes(8), 0, 0, 0]), "1 bytes follow a shape"),
        (bytes([0, 1, 1, 11, 0, *bytes(8), 0, 0]), "runs of shapes"),
        (bytes([0, 1, 1, 11, 0, *bytes(8), 0, 0, 1, 16, 0]), "runs of shapes"),
        (bytes([0, 1, 1, 11, 0, *bytes(8), 0, 0, 1, 4, 1]), "runs of shapes"),
        (bytes([0, 1, 1, 11, 0, *bytes(8), 0, 0, 1, 4, 0]), "columns of counts"),
        (bytes([0, 1, 1, 11, 0, *bytes(8), 0, 0, 1, 4, 0, 1, 1, 1]), "1 bytes follow the columns"),
    ],
)
def test_an_invalid_section_is_corrupt_with_the_reason(section: bytes, why: str) -> None:
    chunk = encode(fragment([(1, [START_MS], [0.0], [1])]))
    with pytest.raises(CorruptData, match=why) as refused:
        decode_chunk(add_details(chunk, [(Tag.HISTOGRAMS, section)]))
    assert refused.value.reason == "corrupt_chunk"


def test_few_bytes_cannot_claim_many_bucket_counts() -> None:
    count = 1 << 10
    chunk = encode(fragment([(1, START_MS + np.arange(count), np.zeros(count), [1] * count)]))
    shape = bytes([0, *bytes(8), 1, 0, 0x80, 0x40, 0])
    section = bytes([0, 0x80, 8, 1, len(shape), *shape, 0x80, 8, 4, 0, *bytes(9000)])
    with pytest.raises(CorruptData, match="claims 8388608 bucket counts"):
        decode_chunk(add_details(chunk, [(Tag.HISTOGRAMS, section)]))


def test_start_columns_without_a_start_are_corrupt() -> None:
    chunk = encode(fragment([(1, [START_MS], [0.0], [1])]))
    for section in (bytes([1 << 2]), bytes([2 << 2]), b""):
        with pytest.raises(CorruptData, match="start columns"):
            decode_chunk(add_details(chunk, [(Tag.STARTS, section)]))


def test_bounds_of_bytes_hold_for_every_range_of_series() -> None:
    given = detailed_fragments()["native_and_starts"]
    assert given.details is not None
    encoded = EncodedDetails(given.details, given.ts_ms, given.value, given.sample_start, dense=True)
    for first in range(given.series):
        for last in range(first + 1, given.series + 1):
            size = sum(len(data) for _, data in encoded.sections(first, last))
            assert size <= encoded.bytes_bound()[first:last].sum()


def test_a_shape_of_every_kind_comes_back() -> None:
    given = detailed_fragments()["native_changing"]
    details = decode_chunk(encode(given)).details
    assert details is not None
    assert details.histograms is not None
    assert details.histograms.shapes[0] == WIDE
    assert len(details.histograms.shapes) == 5


def test_details_of_nothing_are_none() -> None:
    assert SampleDetails(np.zeros(3, np.int64)).take(np.arange(3)) is None
