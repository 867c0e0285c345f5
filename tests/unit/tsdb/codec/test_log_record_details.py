"""Log records with details: golden files, refusals of the encoder, and the decoder's status of broken bytes."""

from __future__ import annotations

import numpy as np
import pytest

from support.data.column_cases import GOLDEN
from support.data.detail_cases import detailed_fragments, histograms
from support.data.log_records import decode_list
from support.oracles.record_twin import crc32c
from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.records.log_record import (
    BUCKET_COUNTS_MAX,
    DETAILS_VERSION,
    FLAG_DETAILS,
    FLAG_IMPORT_TICK,
    FLAG_SHARED_TIME,
    RECORD_BYTES_MAX,
    STATUS_CORRUPT,
    STATUS_OK,
    STATUS_UNKNOWN_VERSION,
    DecodedRecords,
    encode_record,
    encode_tick,
)
from tsdb.model.details import SampleDetails, joined_details, same_details
from tsdb.model.errors import InvalidRequest
from tsdb.model.histograms import HistogramColumns, HistogramShape

FOLDER = GOLDEN / "v3/log_record"
NAMES = sorted(name for name in detailed_fragments() if name != "native_long")


def record_of(of: Fragment, details: SampleDetails | None) -> bytes:
    """The samples of a fragment as one pack of a record."""
    ids = np.repeat(of.series_id, np.diff(of.sample_start))
    length = np.array([of.samples], np.uint32)
    return encode_record(np.array([of.pack_id], np.uint64), length, ids, of.ts_ms, of.value, details)


def of_name(name: str) -> bytes:
    given = detailed_fragments()[name]
    return record_of(given, given.details)


def plain() -> bytes:
    return record_of(detailed_fragments()["native"], None)


def sealed(body: bytes) -> bytes:
    return body + crc32c(body).to_bytes(4, "little")


def assert_samples(decoded: DecodedRecords, record: int, given: Fragment) -> None:
    samples = slice(int(decoded.sample_start[record]), int(decoded.sample_start[record + 1]))
    np.testing.assert_array_equal(decoded.ts_ms[samples], given.ts_ms)
    np.testing.assert_array_equal(decoded.value[samples].view(np.int64), given.value.view(np.int64))


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_record_decodes_to_its_samples_and_they_encode_to_its_bytes(name: str) -> None:
    given, value = detailed_fragments()[name], (FOLDER / f"{name}.bin").read_bytes()
    assert of_name(name) == value
    decoded = decode_list([value])
    assert decoded.status.tolist() == [STATUS_OK]
    assert decoded.flags.tolist() == [FLAG_DETAILS]
    assert_samples(decoded, 0, given)
    assert same_details(decoded.details, given.details)


def test_one_time_for_all_samples_is_stored_once() -> None:
    ids, ts_ms = np.array([1, 2], np.uint64), np.full(2, 1_000)
    columns = histograms([0, 2], 1)
    details = SampleDetails(None, columns, np.arange(2))
    one, two = np.array([7], np.uint64), np.array([2], np.uint32)
    decoded = decode_list([encode_record(one, two, ids, ts_ms, columns.sums, details)])
    assert decoded.flags.tolist() == [FLAG_DETAILS | FLAG_SHARED_TIME]
    assert same_details(decoded.details, details)


def test_samples_without_details_are_a_record_of_version_1() -> None:
    assert plain()[4] == 1
    assert decode_list([plain(), encode_tick()]).details is None
    assert of_name("native")[4] == DETAILS_VERSION
    assert of_name("native")[5 : len(plain()) - 4] == plain()[5:-4], "what precedes the sections"


def test_records_with_and_without_details_decode_together() -> None:
    given = detailed_fragments()
    records = [plain(), of_name("native"), encode_tick(import_tick=True), of_name("native_and_starts"), plain()]
    decoded = decode_list(records)
    assert decoded.status.tolist() == [STATUS_OK] * 5
    assert decoded.flags.tolist() == [0, FLAG_DETAILS, FLAG_IMPORT_TICK, FLAG_DETAILS, 0]
    want = [(12, None), (12, given["native"].details), (36, given["native_and_starts"].details), (12, None)]
    assert same_details(decoded.details, joined_details(want))
    assert_samples(decoded, 3, given["native_and_starts"])


def sections(*parts: bytes) -> bytes:
    """A record whose sections are exactly these bytes, under a right checksum."""
    return sealed(plain()[:4] + bytes([DETAILS_VERSION]) + plain()[5:-4] + b"".join(parts))


def section(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + len(data).to_bytes(4, "little") + data


STARTS = section(1, bytes([12 << 2 | 1, 2]))
BROKEN = {
    "no section": sections(),
    "a section cut": sections(STARTS[:-1]),
    "a head cut": sections(STARTS, b"\2\0\0\0"),
    "sections in another order": sections(section(2, b""), STARTS),
    "a section twice": sections(STARTS, STARTS),
    "tag 0": sections(section(0, b"")),
    "a length past the end": sections(b"\1\xff\xff\xff\xff"),
    "starts of nothing": sections(section(1, bytes([12 << 2]))),
    "starts of too many": sections(section(1, bytes([13 << 2 | 1, 2]))),
    "histograms of nothing": sections(STARTS, section(2, bytes([12]))),
    "histograms cut": sections(section(2, b"")),
    "a tick with a section": sealed(encode_tick()[:4] + bytes([DETAILS_VERSION]) + encode_tick()[5:-4] + STARTS),
    "the version alone": sealed(b"KTLR\x03"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_record_with_broken_sections_is_corrupt_and_costs_only_itself(name: str) -> None:
    given = detailed_fragments()["native_and_starts"]
    decoded = decode_list([of_name("native_and_starts"), BROKEN[name], of_name("starts"), plain()])
    assert decoded.status.tolist() == [STATUS_OK, STATUS_CORRUPT, STATUS_OK, STATUS_OK]
    assert decoded.flags.tolist() == [FLAG_DETAILS, 0, FLAG_DETAILS, 0]
    assert decoded.pack_start.tolist() == [0, 1, 1, 2, 3]
    assert decoded.sample_start.tolist() == [0, 36, 36, 72, 84]
    assert len(decoded.series_id) == len(decoded.ts_ms) == len(decoded.value) == 84
    assert len(decoded.pack_id) == len(decoded.pack_length) == len(decoded.id_hash) == 3
    assert_samples(decoded, 3, detailed_fragments()["native"])
    want = [(36, given.details), (36, detailed_fragments()["starts"].details), (12, None)]
    assert same_details(decoded.details, joined_details(want))


@pytest.mark.parametrize("parts", [(section(3, b""),), (STARTS, section(9, b"abc"))])
def test_a_section_of_a_newer_writer_is_an_unknown_version(parts: tuple[bytes, ...]) -> None:
    decoded = decode_list([plain(), sections(*parts)])
    assert decoded.status.tolist() == [STATUS_OK, STATUS_UNKNOWN_VERSION]
    assert decoded.sample_start.tolist() == [0, 12, 12]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["native_and_starts", "native_changing", "starts"])
def test_broken_bytes_under_a_right_checksum_never_do_harm(name: str) -> None:
    body = of_name(name)[:-4]
    given = detailed_fragments()[name]
    records = []
    for at in range(len(record_of(given, None)) - 4, len(body)):
        for value in (0, 1, 0x7F, 0x80, 0xFF, body[at] ^ 1, body[at] ^ 0x40):
            records.append(sealed(body[:at] + bytes([value]) + body[at + 1 :]))
    for record in records:
        decoded = decode_list([record])
        assert len(decoded.ts_ms) == (given.samples if decoded.status[0] == STATUS_OK else 0)
    assert set(decode_list(records).status.tolist()) <= {STATUS_OK, STATUS_CORRUPT, STATUS_UNKNOWN_VERSION}


def wide(count: int, buckets: int) -> tuple[HistogramColumns, SampleDetails]:
    rng = np.random.Generator(np.random.PCG64(1))
    counts, zeros = rng.random(count * buckets), np.zeros(count)
    columns = HistogramColumns(
        (HistogramShape(0, 0.0, ((0, buckets),)),),
        np.zeros(count, np.int32),
        np.arange(count + 1) * buckets,
        counts,
        counts.reshape(count, buckets).sum(axis=1),
        np.arange(count) / 3,
        zeros,
        np.zeros(count, np.uint8),
        np.zeros(count, np.bool_),
    )
    return columns, SampleDetails(None, columns, np.arange(count))


@pytest.mark.parametrize(("count", "buckets", "what"), [(400, 500, "bytes"), (129, 8192, "bucket counts")])
def test_a_record_with_too_many_details_is_refused(count: int, buckets: int, what: str) -> None:
    columns, details = wide(count, buckets)
    if what == "bucket counts":
        columns.buckets[:] = 0
    ids, ts_ms = np.arange(count, dtype=np.uint64), np.full(count, 1_000)
    one, length = np.array([7], np.uint64), np.array([count], np.uint32)
    limit = RECORD_BYTES_MAX if what == "bytes" else BUCKET_COUNTS_MAX
    with pytest.raises(InvalidRequest, match=str(limit)) as refused:
        encode_record(one, length, ids, ts_ms, columns.sums, details)
    assert refused.value.reason == "record_too_large"


def test_a_record_cannot_claim_more_bucket_counts_than_the_limit() -> None:
    count = 256
    ids, ts_ms = np.arange(count, dtype=np.uint64), np.full(count, 1_000)
    body = encode_record(np.array([7], np.uint64), np.array([count], np.uint32), ids, ts_ms, np.zeros(count))[:-4]
    shape = bytes([0, *bytes(8), 1, 0, 0x80, 0x40, 0])
    data = bytes([0, 0x80, 2, 1, len(shape), *shape, 0x80, 2, 4, 0, *bytes(9000)])
    record = sealed(body[:4] + bytes([DETAILS_VERSION]) + body[5:] + section(2, data))
    assert decode_list([record]).status.tolist() == [STATUS_CORRUPT]
