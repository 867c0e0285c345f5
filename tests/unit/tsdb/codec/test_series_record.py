"""The series record: golden files, and the decoder's status of broken bytes."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.data.log_records import GOLDEN
from support.oracles.record_twin import crc32c
from tsdb.codec.records import series_record_kernels as kernels
from tsdb.codec.records.record_status import STATUS_CORRUPT, STATUS_OK, STATUS_UNKNOWN_VERSION
from tsdb.codec.records.series_record import (
    Announcement,
    DecodedAnnouncements,
    decode_announcement,
    decode_announcements,
    encode_announcement,
    encode_announcements,
)
from tsdb.model.errors import CorruptData, InvalidRequest, UnknownVersion
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.placement import PlacementRule

FOLDER = GOLDEN / "v1/series_record"
GOLDEN_NAMES = sorted(path.stem for path in FOLDER.glob("*.key"))
DOCUMENT = Path(__file__).parents[4] / "docs/formats/series-record.md"
WRAPS = ((1 << 63) - 1, -(1 << 63) + 11)  # The end minus the start is 12, modulo 2^64.
LABELS = canonical_labels({"__name__": "up", "job": "node"})
UP = Announcement(series_id(LABELS), 658, 42, LABELS)


def golden(name: str) -> tuple[dict[str, Any], bytes, bytes]:
    stored = json.loads((FOLDER / f"{name}.json").read_text())
    return stored, (FOLDER / f"{name}.key").read_bytes(), (FOLDER / f"{name}.value").read_bytes()


def encode(announcement: Announcement) -> tuple[bytes, bytes]:
    return encode_announcement(announcement.series_id, announcement.epoch, announcement.pack_id, announcement.canonical)


def sealed(key: bytes, body: bytes) -> tuple[bytes, bytes]:
    return key, body + struct.pack("<I", crc32c(key + body))


def decode_list(records: list[tuple[bytes, bytes]]) -> tuple[DecodedAnnouncements, bytes]:
    keys, values = [key for key, _ in records], [value for _, value in records]
    starts = [np.cumsum([0, *map(len, column)]).astype(np.int64) for column in (keys, values)]
    joined = b"".join(values)
    return decode_announcements(b"".join(keys), starts[0], joined, starts[1]), joined


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_files_decode_to_their_recorded_values_and_encode_to_themselves(name: str) -> None:
    stored, key, value = golden(name)
    canonical = canonical_labels(stored["labels"])
    said = Announcement(int(stored["series_id"], 16), stored["epoch"], int(stored["pack_id"], 16), canonical)
    assert decode_announcement(key, value) == said
    assert encode(said) == (key, value)
    assert (series_id(canonical), PlacementRule().place(canonical).pack_id) == (said.series_id, said.pack_id)


@pytest.mark.parametrize("epoch", [-(1 << 31) - 1, 1 << 31])
def test_an_epoch_beyond_32_bits_is_refused(epoch: int) -> None:
    with pytest.raises(InvalidRequest, match=f"index epoch {epoch} does not fit") as refused:
        encode_announcement(1, epoch, 1, LABELS)
    assert refused.value.reason == "epoch_out_of_range"


KEY, VALUE = encode(UP)
UNSOUND = {
    "a null value": (KEY, b""),
    "fewer bytes than any version": (KEY, VALUE[-4:]),
    "no key": (b"", VALUE),
    "a key of another record": (encode_announcement(UP.series_id, 659, 42, LABELS)[0], VALUE),
    "a key cut short": sealed(KEY[:11], VALUE[:-4]),
    "a key too long": sealed(KEY + b"\0", VALUE[:-4]),
    "a value without labels": sealed(KEY, VALUE[:9]),
    "a value cut before its labels": sealed(KEY, VALUE[:5]),
    "a name without a value": sealed(KEY, VALUE[:-4] + b"\xffname"),
    "a name alone": sealed(KEY, VALUE[:9] + b"__name__"),
    "another version, its checksum wrong": (KEY, b"\2" + VALUE[1:]),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_announcements_are_corrupt_and_cost_only_themselves(name: str) -> None:
    decoded, joined = decode_list([(KEY, VALUE), UNSOUND[name], (KEY, VALUE)])
    assert decoded.status.tolist() == [STATUS_OK, STATUS_CORRUPT, STATUS_OK]
    assert decoded.series_id.tolist() == [UP.series_id, 0, UP.series_id]
    assert decoded.epoch.tolist() == [658, 0, 658]
    assert decoded.pack_id.tolist() == [42, 0, 42]
    spans = [joined[a:b] for a, b in zip(decoded.label_start, decoded.label_end, strict=True)]
    assert spans == [LABELS, b"", LABELS]
    with pytest.raises(CorruptData, match="breaks its format"):
        decode_announcement(*UNSOUND[name])


def test_every_one_bit_flip_of_key_or_value_is_corrupt() -> None:
    record = KEY + VALUE
    flipped = []
    for bit in range(8 * len(record)):
        changed = bytearray(record)
        changed[bit // 8] ^= 1 << bit % 8
        flipped.append((bytes(changed[: len(KEY)]), bytes(changed[len(KEY) :])))
    assert set(decode_list(flipped)[0].status.tolist()) == {STATUS_CORRUPT}


@pytest.mark.parametrize("body", [b"\2" + VALUE[1:-4], b"\0", b"\xff" * 50])
def test_a_whole_record_of_another_version_is_unknown_not_corrupt(body: bytes) -> None:
    record = sealed(KEY, body)
    assert decode_list([record])[0].status.tolist() == [STATUS_UNKNOWN_VERSION]
    with pytest.raises(UnknownVersion, match=f"of version {body[0]}; this process knows up to 1"):
        decode_announcement(*record)


@pytest.mark.parametrize("bounds", [(-1, 12), (0, 10_000), (12, 0), (1 << 62, (1 << 62) + 12), WRAPS])
def test_a_range_outside_the_data_is_corrupt(bounds: tuple[int, int]) -> None:
    whole_key, whole_value = np.array([0, len(KEY)]), np.array([0, len(VALUE)])
    assert decode_announcements(KEY, np.array(bounds), VALUE, whole_value).status.tolist() == [STATUS_CORRUPT]
    assert decode_announcements(KEY, whole_key, VALUE, np.array(bounds)).status.tolist() == [STATUS_CORRUPT]


def test_no_records_decode_to_nothing() -> None:
    assert decode_list([])[0].status.size == 0


def test_the_document_and_the_code_agree_on_offsets() -> None:
    text = DOCUMENT.read_text()
    offsets = {field: at for at, field in re.findall(r"^\| (\d+) \| \S+ \| (\w+) \|", text, re.MULTILINE)}
    assert offsets == {
        "series_id": str(kernels.SERIES_ID_AT),
        "epoch": str(kernels.EPOCH_AT),
        "version": str(kernels.VERSION_AT),
        "pack_id": str(kernels.PACK_ID_AT),
        "labels": str(kernels.LABELS_AT),
    }
    assert f"Key, {kernels.KEY_BYTES} bytes" in text
    assert f"Value, {kernels.LABELS_AT + kernels.CRC_BYTES} bytes and the labels" in text


def test_announcements_encoded_together_are_those_encoded_alone() -> None:
    rng = np.random.default_rng(3)
    sets = [b"__name__\xffm\xffn\xff%d" % number * (number + 1) for number in range(20)]
    starts = np.cumsum([0, *map(len, sets)])
    which = rng.integers(0, 20, 60)
    ids, packs = rng.integers(0, 2**64, (2, 60), np.uint64)
    epochs = rng.integers(-(2**31), 2**31, 60)
    made = encode_announcements(ids, epochs, packs, np.frombuffer(b"".join(sets), np.uint8), starts, which)
    assert made == [encode_announcement(int(ids[i]), int(epochs[i]), int(packs[i]), sets[which[i]]) for i in range(60)]


@pytest.mark.parametrize("epoch", [2**31, -(2**31) - 1])
def test_an_epoch_beyond_32_bits_is_refused_among_others(epoch: int) -> None:
    one = np.ones(2, np.uint64)
    labels, starts, which = np.frombuffer(LABELS, np.uint8), np.array([0, len(LABELS)]), np.zeros(2, np.int64)
    with pytest.raises(InvalidRequest, match="does not fit 32 bits"):
        encode_announcements(one, np.array([5, epoch]), one, labels, starts, which)
