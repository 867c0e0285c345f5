"""The exemplar record: golden file, round trip, and the status of broken bytes among records of samples."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from support.data.exemplars import exemplars_of, plain
from support.data.log_records import GOLDEN, decode_list, packs_of
from support.oracles import record_twin as twin
from support.oracles.record_twin import Pack
from tsdb.codec.records.exemplar_record import (
    encode_exemplars,
    encoded_exemplars_size,
    halve_exemplars,
    is_exemplar_record,
)
from tsdb.codec.records.log_record import (
    FLAG_EXEMPLARS,
    RECORD_BYTES_MAX,
    STATUS_CORRUPT,
    STATUS_OK,
    encode_tick,
)

T0 = 1_700_000_000_000
FILE = GOLDEN / "v2/log_record/exemplars.bin"
ONES = [
    (5, T0, 0.25, {"trace_id": "4bf92f3577b34da6", "span_id": "00f067aa"}),
    (5, T0 - 9, -0.0, {}),
    ((1 << 64) - 1, -1, float("inf"), {"Grüße": "日本"}),
]
RECORD = encode_exemplars(exemplars_of(ONES))
SAMPLES = twin.encode([Pack(5, ((1, T0, 11), (2, T0 + 5, 22)))])


def test_the_golden_file_has_its_recorded_exemplars_and_the_encoder_writes_it() -> None:
    stored = [tuple(one) for one in json.loads(FILE.with_suffix(".json").read_text())]
    decoded = decode_list([FILE.read_bytes()])
    assert decoded.status.tolist() == [STATUS_OK]
    assert decoded.exemplars is not None
    assert [
        (f"{sid:016x}", ts, value.hex(), labels) for sid, ts, value, labels in plain(decoded.exemplars.exemplars)
    ] == stored
    assert FILE.read_bytes() == RECORD


def test_records_of_exemplars_lie_among_records_of_samples() -> None:
    decoded = decode_list([RECORD, SAMPLES, encode_tick(), RECORD])
    assert decoded.status.tolist() == [STATUS_OK] * 4
    assert decoded.flags.tolist() == [FLAG_EXEMPLARS, 0, 0, FLAG_EXEMPLARS]
    assert packs_of(decoded, 0) == packs_of(decoded, 3) == []
    assert packs_of(decoded, 1) == twin.decode(SAMPLES)
    assert decoded.exemplars is not None
    assert plain(decoded.exemplars.exemplars) == ONES * 2
    assert decoded.exemplars.record.tolist() == [0, 0, 0, 3, 3, 3]
    assert np.signbit(decoded.exemplars.exemplars.values[1])


def test_records_without_exemplars_decode_to_none() -> None:
    assert decode_list([SAMPLES, encode_tick()]).exemplars is None


def test_the_size_is_that_of_the_document() -> None:
    labels = sum(len(label) for label in (b"trace_id", b"4bf92f3577b34da6", b"span_id", b"00f067aa")) + 3
    labels += len("Grüße".encode()) + len("日本".encode()) + 1
    assert len(RECORD) == 20 + 26 * 3 + labels == encoded_exemplars_size(3, labels)


def test_halves_have_all_exemplars_in_order() -> None:
    halves = halve_exemplars(RECORD)
    assert all(map(is_exemplar_record, halves))
    decoded = decode_list(halves)
    assert decoded.exemplars is not None
    assert plain(decoded.exemplars.exemplars) == ONES
    assert halve_exemplars(halves[0]) == [halves[0]]


def resealed(at: int, code: str, value: int) -> bytes:
    body = bytearray(RECORD[:-4])
    struct.pack_into(f"<{code}", body, at, value)
    return twin.sealed(bytes(body))


LENGTH_AT = 16 + 24 * 3
UNSOUND = {
    "a flag": resealed(5, "B", 1),
    "a reserved byte in use": resealed(7, "B", 1),
    "no exemplar": twin.sealed(b"KTLR\x02" + bytes(11)),
    "more exemplars than bytes": resealed(8, "I", 0xFFFFFFFF),
    "more bytes of labels than there are": resealed(12, "I", 0xFFFFFFFF),
    "lengths that sum to more": resealed(LENGTH_AT + 1, "B", 1),
    "lengths that sum to less": resealed(LENGTH_AT, "B", 0),
    "a byte too many": twin.sealed(RECORD[:-4] + b"\0"),
    "a byte too few": twin.sealed(RECORD[:-5]),
    "a header cut off": twin.sealed(RECORD[:12]),
    "the version alone": twin.sealed(b"KTLR\x02"),
    "a flipped bit": RECORD[:20] + bytes([RECORD[20] ^ 1]) + RECORD[21:],
    "more bytes than a record may have": twin.sealed(RECORD[:-4] + bytes(RECORD_BYTES_MAX)),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_records_are_corrupt_and_cost_only_themselves(name: str) -> None:
    decoded = decode_list([SAMPLES, UNSOUND[name], RECORD])
    assert decoded.status.tolist() == [STATUS_OK, STATUS_CORRUPT, STATUS_OK]
    assert decoded.exemplars is not None
    assert plain(decoded.exemplars.exemplars) == ONES
    assert decoded.exemplars.record.tolist() == [2, 2, 2]
