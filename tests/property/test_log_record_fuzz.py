"""The log record under any input: round trips, agreement with the twin, and no byte string that breaks the decoder."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from support.data.log_records import decode_list, encode_packs, packs_of
from support.oracles import record_twin as twin
from support.oracles.record_twin import Pack
from tsdb.codec.records.log_record import STATUS_CORRUPT, STATUS_OK, STATUS_UNKNOWN_VERSION, decode_records

U64 = st.integers(0, (1 << 64) - 1)
# Bases far enough from the ends that base + delta stays an int64; the ends have golden files.
BASES = st.integers(-(1 << 63), (1 << 63) - (1 << 33))
DELTAS = st.one_of(st.just(0), st.integers(0, 60_000), st.integers(0, (1 << 32) - 1))


@st.composite
def packs(draw: st.DrawFn) -> list[Pack]:
    base = draw(BASES)
    deltas = st.just(0) if draw(st.booleans()) else DELTAS
    sample = st.tuples(U64, deltas.map(lambda delta: base + delta), U64)
    samples = st.lists(sample, min_size=1, max_size=8).map(tuple)
    return draw(st.lists(st.builds(Pack, U64, samples), min_size=1, max_size=6))


@st.composite
def sealed_bodies(draw: st.DrawFn) -> bytes:
    """A right checksum over a header that may claim anything, so that every check behind the checksum is reached."""
    counts = st.one_of(st.integers(0, 4), st.integers(0, (1 << 32) - 1))
    k, n, flags = draw(counts), draw(counts), draw(st.integers(0, 4))
    head = twin.header(flags=flags, k=k, n=n, base=draw(st.integers(-(1 << 63), (1 << 63) - 1)))
    fitting = 20 * k + (16 if flags & 1 else 20) * n
    size = fitting if fitting < 500 and draw(st.booleans()) else draw(st.integers(0, 200))
    small = st.integers(0, 3).map(lambda word: word.to_bytes(4, "little"))
    words = draw(st.lists(st.one_of(small, st.binary(min_size=4, max_size=4)), min_size=size // 4, max_size=size // 4))
    return twin.sealed(head + b"".join(words) + bytes(size % 4))


@given(packs())
def test_what_is_encoded_is_decoded_bit_for_bit(written: list[Pack]) -> None:
    decoded = decode_list([encode_packs(written)])
    assert decoded.status.tolist() == [STATUS_OK]
    assert packs_of(decoded, 0) == written


@given(packs())
def test_the_encoder_writes_what_its_twin_writes(written: list[Pack]) -> None:
    assert encode_packs(written) == twin.encode(written)


@given(packs(), st.data())
def test_any_one_bit_flip_is_corrupt(written: list[Pack], data: st.DataObject) -> None:
    record = bytearray(encode_packs(written))
    bit = data.draw(st.integers(0, 8 * len(record) - 1))
    record[bit // 8] ^= 1 << bit % 8
    assert decode_list([bytes(record)]).status.tolist() == [STATUS_CORRUPT]


def test_every_one_bit_flip_of_a_small_record_is_corrupt() -> None:
    record = twin.encode([Pack(7, ((1, 1000, 2), (3, 1001, 4))), Pack(8, ((5, 1002, 6),))])
    flipped = []
    for bit in range(8 * len(record)):
        changed = bytearray(record)
        changed[bit // 8] ^= 1 << bit % 8
        flipped.append(bytes(changed))
    assert set(decode_list(flipped).status.tolist()) == {STATUS_CORRUPT}


@given(packs(), st.data())
def test_a_record_cut_or_lengthened_anywhere_is_corrupt(written: list[Pack], data: st.DataObject) -> None:
    record = encode_packs(written)
    cut = data.draw(st.integers(0, len(record) - 1))
    more = data.draw(st.binary(min_size=1, max_size=40))
    assert decode_list([record[:cut], record + more]).status.tolist() == [STATUS_CORRUPT] * 2


@given(st.lists(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda body: b"KTLR\x01" + body))))
def test_random_bytes_are_corrupt_records(records: list[bytes]) -> None:
    decoded = decode_list(records)
    assert set(decoded.status.tolist()) <= {STATUS_CORRUPT}
    assert decoded.series_id.size == decoded.pack_id.size == 0


@given(sealed_bodies())
@example(twin.sealed(twin.header(k=0xFFFFFFFF, n=0xFFFFFFFF)))
def test_what_lies_behind_a_right_checksum_is_judged_as_the_twin_judges(record: bytes) -> None:
    decoded = decode_list([record])
    expected = twin.decode(record)
    assert decoded.status.tolist() == [STATUS_CORRUPT if expected is None else STATUS_OK]
    assert packs_of(decoded, 0) == (expected or [])


@given(st.lists(st.one_of(packs().map(twin.encode), sealed_bodies(), st.binary(max_size=60)), max_size=12))
def test_a_record_decodes_alike_alone_and_among_others(records: list[bytes]) -> None:
    together = decode_list(records)
    for index, record in enumerate(records):
        alone = decode_list([record])
        assert together.status[index] == alone.status[0]
        assert together.flags[index] == alone.flags[0]
        assert packs_of(together, index) == packs_of(alone, 0)


@given(st.binary(max_size=300), st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-5, 305), max_size=8))
def test_no_range_reaches_outside_the_data(data: bytes, starts: list[int]) -> None:
    decoded = decode_records(data, np.array([0, *starts], dtype=np.int64))
    assert set(decoded.status.tolist()) <= {STATUS_CORRUPT, STATUS_UNKNOWN_VERSION}
