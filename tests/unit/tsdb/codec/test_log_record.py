"""The log record: golden files, refusals of the encoder, and the decoder's status of broken bytes."""

from __future__ import annotations

import json
import re
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from support.data.log_records import GOLDEN, decode_list, encode_packs, golden_packs, packs_of
from support.oracles import record_twin as twin
from support.oracles.record_twin import Pack
from tsdb.codec.records import log_record_kernels as kernels
from tsdb.codec.records.log_record import (
    FLAG_IMPORT_TICK,
    FLAG_SHARED_TIME,
    RECORD_BYTES_MAX,
    STATUS_CORRUPT,
    STATUS_OK,
    STATUS_UNKNOWN_VERSION,
    decode_records,
    encode_record,
    encode_tick,
    encoded_size,
    id_vector_hash,
)
from tsdb.model.errors import InvalidRequest

GOLDEN_NAMES = sorted(path.stem for path in (GOLDEN / "v1/log_record").glob("*.bin"))
DOCUMENT = Path(__file__).parents[4] / "docs/formats/log-record.md"
T0 = 1_700_000_000_000
GOOD = [Pack(5, ((1, T0, 11), (2, T0 + 5, 22))), Pack(6, ((3, T0 + 9, 33),))]
RECORD = twin.encode(GOOD)
WRAPS = ((1 << 63) - 1, -(1 << 63) + 40)  # The end minus the start is 41, modulo 2^64.
ALL_AT_ONCE = twin.encode([Pack(5, ((1, T0, 11), (2, T0, 22)))])


def golden(name: str) -> bytes:
    return (GOLDEN / "v1/log_record" / f"{name}.bin").read_bytes()


def columns(samples: int, *, spread_ms: int = 0) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.float64]]:
    ts_ms = np.full(samples, T0, dtype=np.int64)
    ts_ms[-1] += spread_ms
    return np.arange(samples, dtype=np.uint64), ts_ms, np.ones(samples)


def encode_one_pack(samples: int, *, spread_ms: int = 0) -> bytes:
    ids, ts_ms, values = columns(samples, spread_ms=spread_ms)
    return encode_record(np.array([9], dtype=np.uint64), np.array([samples], dtype=np.uint32), ids, ts_ms, values)


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_files_decode_to_their_recorded_values(name: str) -> None:
    stored = json.loads((GOLDEN / "v1/log_record" / f"{name}.json").read_text())
    decoded = decode_list([golden(name)])
    assert decoded.status.tolist() == [STATUS_OK]
    assert packs_of(decoded, 0) == golden_packs(name)
    assert bool(decoded.flags[0] & FLAG_IMPORT_TICK) == stored["import_tick"]


@pytest.mark.parametrize("name", [name for name in GOLDEN_NAMES if golden_packs(name)])
def test_the_encoder_still_writes_the_golden_bytes(name: str) -> None:
    assert encode_packs(golden_packs(name)) == golden(name)


def test_ticks_still_have_the_golden_bytes() -> None:
    assert encode_tick() == golden("tick")
    assert encode_tick(import_tick=True) == golden("import_tick")


def test_golden_files_cover_every_flag_and_special_value() -> None:
    flags = {int(decode_list([golden(name)]).flags[0]) for name in GOLDEN_NAMES}
    assert flags == {0, FLAG_SHARED_TIME, FLAG_IMPORT_TICK}
    values = decode_list([golden("special_values")]).value
    assert np.isnan(values).any()
    assert np.isinf(values).any()
    assert (values.view(np.uint64) == 1 << 63).any(), "-0.0"


def test_one_timestamp_for_all_is_stored_once() -> None:
    assert len(encode_one_pack(50)) == encoded_size(1, 50, shared_ts=True) == 28 + 20 + 16 * 50
    assert len(encode_one_pack(50, spread_ms=1)) == encoded_size(1, 50, shared_ts=False) == 28 + 20 + 20 * 50


def test_a_record_may_fill_the_limit_and_no_more() -> None:
    assert len(encode_one_pack(65_533)) == RECORD_BYTES_MAX
    assert decode_list([encode_one_pack(65_533)]).status.tolist() == [STATUS_OK]
    with pytest.raises(InvalidRequest, match=r"1 packs and 65534 samples has over 1048576 bytes") as refused:
        encode_one_pack(65_534)
    assert refused.value.reason == "record_too_large"


def test_samples_may_lie_as_far_apart_as_a_delta_reaches_and_no_further() -> None:
    reach = kernels.DELTA_MAX
    assert decode_list([encode_one_pack(2, spread_ms=reach)]).ts_ms.tolist() == [T0, T0 + reach]
    for spread_ms in (reach + 1, -reach - 1, (1 << 63) - 1 - T0):
        with pytest.raises(InvalidRequest, match=f"lie {abs(spread_ms)} ms apart; limit is 4294967295") as refused:
            encode_one_pack(2, spread_ms=spread_ms)
        assert refused.value.reason == "record_time_range"


@pytest.mark.parametrize("lengths", [[], [0, 3], [3, 0], [2], [4], [2, 2]])
def test_pack_lengths_that_do_not_fit_the_samples_are_a_bug(lengths: list[int]) -> None:
    ids, ts_ms, values = columns(3)
    packs = np.arange(len(lengths), dtype=np.uint64)
    with pytest.raises(AssertionError):
        encode_record(packs, np.array(lengths, dtype=np.uint32), ids, ts_ms, values)


def test_a_record_is_written_into_a_callers_buffer_at_the_given_place() -> None:
    out = np.zeros(400, dtype=np.uint8)
    ids, ts_ms, values = columns(6)
    packs, lengths = np.array([1, 2, 3], dtype=np.uint64), np.array([1, 2, 3], dtype=np.uint32)
    end = kernels.encode_record_kernel(packs, lengths, 1, 3, ids, ts_ms, values, 1, out, 17)
    assert out[17:end].tobytes() == encode_record(packs[1:], lengths[1:], ids[1:], ts_ms[1:], values[1:])
    assert not out[:17].any()
    assert not out[end:].any()


def test_a_buffer_that_is_too_small_is_left_alone() -> None:
    ids, ts_ms, values = columns(6)
    packs, lengths = np.array([1], dtype=np.uint64), np.array([6], dtype=np.uint32)
    out = np.zeros(encoded_size(1, 6, shared_ts=True), dtype=np.uint8)
    assert kernels.encode_record_kernel(packs, lengths, 0, 1, ids, ts_ms, values, 0, out, 1) == kernels.DOES_NOT_FIT
    assert not out.any()
    assert kernels.encode_record_kernel(packs, lengths, 0, 1, ids, ts_ms, values, 0, out, 0) == out.size


def resealed(record: bytes, at: int, code: str, value: int) -> bytes:
    """The record with one field changed and a right checksum."""
    body = bytearray(record[:-4])
    struct.pack_into(f"<{code}", body, at, value)
    return twin.sealed(bytes(body))


DELTA_AT = 24 + 20 * 2 + 16 * 3  # Offset of RECORD's first sample.
UNSOUND = {
    "a flag nobody knows": resealed(RECORD, 5, "B", 4),
    "a reserved byte in use": resealed(RECORD, 7, "B", 1),
    "one time claimed, deltas there": resealed(RECORD, 5, "B", FLAG_SHARED_TIME),
    "deltas claimed, one time there": resealed(ALL_AT_ONCE, 5, "B", 0),
    "an import's tick with samples": resealed(RECORD, 5, "B", FLAG_IMPORT_TICK),
    "more packs than bytes": resealed(RECORD, 8, "I", 0xFFFFFFFF),
    "more samples than bytes": resealed(RECORD, 12, "I", 0xFFFFFFFF),
    "packs and samples of the same size, other counts": resealed(resealed(RECORD, 8, "I", 3), 12, "I", 2),
    "lengths that sum to less": resealed(RECORD, DELTA_AT - 4, "I", 0),
    "lengths that sum to more": resealed(RECORD, DELTA_AT - 4, "I", 2),
    "lengths that sum up past 32 bits": resealed(resealed(RECORD, DELTA_AT - 8, "I", 4), DELTA_AT - 4, "I", 0xFFFFFFFF),
    "an empty pack": resealed(resealed(RECORD, DELTA_AT - 8, "I", 3), DELTA_AT - 4, "I", 0),
    "times past the last": resealed(RECORD, 16, "q", (1 << 63) - 9),
    "a byte too many": twin.sealed(RECORD[:-4] + b"\0"),
    "a byte too few": twin.sealed(RECORD[:-5]),
    "a header cut off": twin.sealed(RECORD[:20]),
    "packs without samples": twin.sealed(twin.header(k=1) + bytes(20)),
    "a tick with a base": twin.sealed(twin.header(base=1)),
    "a tick with one time": twin.sealed(twin.header(flags=FLAG_SHARED_TIME)),
    "another magic": twin.sealed(b"KTLS" + RECORD[4:-4]),
    "no bytes": b"",
    "fewer bytes than any version": b"KTLR\x02"[:4] + b"\0\0\0\0",
    "more bytes than a record may have": twin.sealed(twin.header(version=3) + bytes(RECORD_BYTES_MAX)),
    "another version, its checksum wrong": RECORD[:4] + b"\3" + RECORD[5:],
}


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_records_are_corrupt_and_cost_only_themselves(name: str) -> None:
    decoded = decode_list([RECORD, UNSOUND[name], encode_tick(import_tick=True), ALL_AT_ONCE])
    assert decoded.status.tolist() == [STATUS_OK, STATUS_CORRUPT, STATUS_OK, STATUS_OK]
    assert decoded.flags.tolist() == [0, 0, FLAG_IMPORT_TICK, FLAG_SHARED_TIME]
    assert packs_of(decoded, 0) == GOOD
    assert packs_of(decoded, 1) == packs_of(decoded, 2) == []
    assert packs_of(decoded, 3) == twin.decode(ALL_AT_ONCE)


def test_times_may_reach_the_last_millisecond() -> None:
    last = resealed(RECORD, 16, "q", (1 << 63) - 10)
    assert decode_list([last]).ts_ms.max() == (1 << 63) - 1


@pytest.mark.parametrize(
    "body", [RECORD[:4] + b"\4" + RECORD[5:-4], b"KTLR\x04", b"KTLR\x00", b"KTLR\xff" + bytes(900)]
)
def test_a_whole_record_of_another_version_is_unknown_not_corrupt(body: bytes) -> None:
    decoded = decode_list([RECORD, twin.sealed(body), RECORD])
    assert decoded.status.tolist() == [STATUS_OK, STATUS_UNKNOWN_VERSION, STATUS_OK]
    assert packs_of(decoded, 1) == []


@pytest.mark.parametrize(
    "bounds", [(-1, 50), (0, 10_000), (50, 20), (1 << 62, (1 << 62) + 100), (-(1 << 62), 10), WRAPS]
)
def test_a_range_outside_the_data_is_a_corrupt_record(bounds: tuple[int, int]) -> None:
    assert decode_records(RECORD, np.array(bounds)).status.tolist() == [STATUS_CORRUPT]


def test_no_records_decode_to_nothing() -> None:
    decoded = decode_list([])
    assert decoded.status.size == decoded.series_id.size == decoded.pack_id.size == 0
    assert decoded.sample_start.tolist() == [0]


def test_records_at_odd_positions_decode_alike() -> None:
    decoded = [decode_records(bytes(shift) + RECORD, np.array([shift, shift + len(RECORD)])) for shift in range(8)]
    assert all(packs_of(one, 0) == GOOD for one in decoded)


def test_threads_decode_at_once() -> None:
    data, starts = RECORD * 500, np.arange(501) * len(RECORD)
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: decode_records(data, starts), range(40)))
    assert all((one.series_id == np.tile([1, 2, 3], 500).astype(np.uint64)).all() for one in answers)
    assert all((one.ts_ms == np.tile([T0, T0 + 5, T0 + 9], 500)).all() for one in answers)


def test_id_vector_hash_vectors_stand() -> None:
    vectors = json.loads((GOLDEN / "v1/hash_vectors.json").read_text())["id_vector_hash"]
    for vector in vectors:
        ids = [int(series_id, 16) for series_id in vector["ids"]]
        assert id_vector_hash(np.array(ids, dtype=np.uint64)) == twin.id_vector_hash(ids) == int(vector["hash"], 16)
    assert len({vector["hash"] for vector in vectors}) == len(vectors)


def test_the_document_and_the_code_agree_on_offsets() -> None:
    rows = re.findall(r"^\| (.*?) \| (\S+) \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE)
    offsets = {field: offset for offset, _, field in rows}
    said = {field: int(offsets[field]) for field in ("version", "flags", "reserved", "k", "n", "base", "pack_id")}
    assert said == {
        "version": kernels.VERSION_AT,
        "flags": kernels.FLAGS_AT,
        "reserved": kernels.RESERVED_AT,
        "k": kernels.PACKS_AT,
        "n": kernels.SAMPLES_AT,
        "base": kernels.BASE_AT,
        "pack_id": kernels.HEADER_BYTES,
    }
    ids, ts_ms, values = columns(1)
    record = encode_record(np.array([77], dtype=np.uint64), np.array([1], dtype=np.uint32), ids, ts_ms, values)
    at = {field: sum(map(int, re.findall(r"\d+", offset))) for field, offset in offsets.items() if "k" in offset}
    assert struct.unpack_from("<Q", record, at["id_hash"])[0] == id_vector_hash(ids)
    assert struct.unpack_from("<d", record, at["value"])[0] == 1.0
    assert struct.unpack_from("<I", record, at["pack_length"])[0] == 1


def test_the_document_and_the_code_agree_on_limits() -> None:
    text = DOCUMENT.read_text()
    assert f"0x{kernels.MAGIC:08x}" in text
    assert f"{RECORD_BYTES_MAX:,} bytes" in text
    assert f"has {encoded_size(0, 0, False)} + 20k + 20n bytes" in text
