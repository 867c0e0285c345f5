"""Blocks of Prometheus are read bit for bit, and bytes that break their format are named, never believed."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_backfill.jobs.imports.prometheus.blocks import blocks_at, read_share
from spark_backfill.jobs.imports.prometheus.histogram_chunks import decode_histograms
from spark_backfill.jobs.imports.prometheus.index import ByteCursor
from spark_backfill.jobs.imports.prometheus.xor_kernels import BROKEN, decode_xor_kernel
from support.data.tsdb_blocks import (
    UNKNOWN_SCHEMA,
    GoldenChunk,
    Labels,
    Sample,
    bits_of,
    golden_chunks,
    write_block,
    xor_chunk,
)
from tsdb.codec.histogram_rows import read_details
from tsdb.model.errors import CorruptData, InvalidRequest, UnknownVersion
from tsdb.model.histograms import GAUGE, UNKNOWN

START_MS = 1_577_836_800_000
STALE = struct.unpack(">d", struct.pack(">Q", 0x7FF0_0000_0000_0002))[0]
Read = dict[str, list[tuple[int, int]]]


def decoded(data: bytes) -> list[tuple[int, int]] | None:
    ts_ms, bits = np.empty(65_535, np.int64), np.empty(65_535, np.uint64)
    count = decode_xor_kernel(np.frombuffer(data, np.uint8), 0, len(data), ts_ms, bits)
    return None if count == BROKEN else list(zip(ts_ms[:count].tolist(), bits[:count].tolist(), strict=True))


def steady(count: int, seed: int = 1) -> list[Sample]:
    rng = random.Random(seed)
    at = START_MS
    made = []
    for n in range(count):
        at += 15_000 + rng.choice((0, 0, 0, 1, -7, 8192, 65_536, 524_288, 10**9))
        made.append((at, float(n) if n % 3 else rng.random()))
    return made


def read(block: Path, shares: int = 3) -> Read:
    found: Read = {}
    for share in range(shares):
        for batch in read_share(block, share, shares):
            bits = batch.column("value").to_numpy().view("u8").tolist()
            for labels, ts_ms, value in zip(batch["labels"].to_pylist(), batch["ts_ms"].to_pylist(), bits, strict=True):
                found.setdefault(labels, []).append((ts_ms, value))
    return found


def expected(*series: tuple[Labels, list[Sample]]) -> Read:
    texts = {json.dumps(dict(sorted(labels.items()))): samples for labels, samples in series}
    return {text: [(ts_ms, bits_of(value)) for ts_ms, value in samples] for text, samples in texts.items()}


TWO: list[tuple[Labels, list[Sample]]] = [
    ({"__name__": "up", "job": "j", "instance": "é"}, steady(1_000)),
    ({"__name__": "down", "job": "j"}, [(START_MS, STALE), (START_MS + 1, -0.0), (START_MS + 9, float("inf"))]),
]


@given(
    st.lists(st.integers(1, 1 << 40), min_size=1, max_size=40),
    st.lists(st.integers(0, (1 << 64) - 1), min_size=40, max_size=40),
    st.integers(-(1 << 40), 1 << 41),
)
def test_every_chunk_comes_back(steps: list[int], bits: list[int], start_ms: int) -> None:
    times = np.cumsum([start_ms, *steps[1:]]).tolist()
    values = [struct.unpack(">d", struct.pack(">Q", number))[0] for number in bits[: len(times)]]
    samples = list(zip(times, values, strict=True))
    assert decoded(xor_chunk(samples)) == [(ts_ms, bits_of(value)) for ts_ms, value in samples]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_chunk_are_broken_or_some_samples(data: bytes) -> None:
    found = decoded(data)
    assert found is None or len(found) == int.from_bytes(data[:2], "big")


def test_a_chunk_cut_short_is_broken() -> None:
    data = xor_chunk(steady(120))
    assert all(decoded(data[:size]) is None for size in range(len(data) - 1))


def test_a_block_comes_back_bit_for_bit(tmp_path: Path) -> None:
    assert read(write_block(tmp_path / "b", TWO)) == expected(*TWO)


def test_deleted_samples_are_not_read(tmp_path: Path) -> None:
    samples = list(TWO[0][1])
    block = write_block(tmp_path / "b", TWO, deleted={0: (samples[10][0], samples[20][0])})
    assert read(block) == expected((TWO[0][0], samples[:10] + samples[21:]), TWO[1])


@pytest.mark.parametrize("golden", golden_chunks(), ids=lambda one: str(one.kind))
def test_histograms_of_prometheus_come_back_bit_for_bit(golden: GoldenChunk, tmp_path: Path) -> None:
    block = write_block(tmp_path / "b", [TWO[0], ({"__name__": "h"}, golden.floats)], histograms={1: golden.chunk})
    rows = pa.Table.from_batches([batch for share in range(2) for batch in read_share(block, share, 2)])
    rows = rows.filter(pc.equal(rows["labels"], json.dumps({"__name__": "h"})))
    details = read_details(rows["histogram"], pc.multiply(pc.fill_null(rows["start_ms"], 0), 1000))
    assert details is not None
    assert details.histograms is not None
    found, samples = details.histograms, golden.samples
    assert rows["ts_ms"].to_pylist() == [one["ts_ms"] for one in samples]
    assert pc.fill_null(rows["start_ms"], 0).to_pylist() == [one["start_ms"] for one in samples]
    assert [f"{bits:016x}" for bits in found.sums.view("u8").tolist()] == [one["sum"] for one in samples]
    live = [at for at, one in enumerate(samples) if not one["stale"]]
    assert len(live) == len(samples) - 1
    for at in live:
        assert found.shapes[found.shape_of[at]] == golden.shape
        assert found.buckets[found.starts[at] : found.starts[at + 1]].tolist() == samples[at]["buckets"]
        assert (found.counts[at], found.zero_counts[at]) == (samples[at]["count"], samples[at]["zero"])
        assert found.hints[at] == (GAUGE if golden.kind == "gauge" else UNKNOWN)
        assert found.is_integer[at] == (golden.chunk[0] in (2, 5))


@pytest.mark.parametrize("golden", golden_chunks(), ids=lambda one: str(one.kind))
def test_no_bytes_of_histograms_crash_or_claim_memory(golden: GoldenChunk) -> None:
    """The checksum is passed by. Each cut is refused or gives other samples, and so do changed bits."""
    encoding, data = golden.chunk
    rng = random.Random(7)
    broken = [data[:size] for size in range(0, len(data), 3)]
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        broken.append(bytes(changed))
    refused = 0
    for each in broken:
        try:
            found = decode_histograms(ByteCursor(memoryview(each), "it", 0, len(each)), encoding)
        except CorruptData:
            refused += 1
            continue
        if found is not None and found[2].histograms is not None:
            assert len(found[2].histograms.buckets) <= 8 * len(each)
    assert refused > len(data) // 4


def test_a_histogram_that_cannot_be_stored_is_a_row_with_a_problem(tmp_path: Path) -> None:
    block = write_block(tmp_path / "b", TWO, histograms={1: UNKNOWN_SCHEMA})
    rows = [row for share in range(2) for batch in read_share(block, share, 2) for row in batch.to_pylist()]
    assert [row["problem"] for row in rows if row["problem"]] == ["native_histogram"]


@pytest.mark.parametrize("name", ["index", "chunks/000001", "tombstones"])
def test_no_flipped_byte_is_believed(name: str, tmp_path: Path) -> None:
    block = write_block(tmp_path / "b", [(TWO[0][0], steady(50)), TWO[1]], deleted={1: (START_MS, START_MS)})
    whole, right = (block / name).read_bytes(), read(block)
    rng = random.Random(5)
    for at in sorted(rng.sample(range(len(whole)), min(60, len(whole)))):
        broken = bytearray(whole)
        broken[at] ^= 1 << rng.randrange(8)
        (block / name).write_bytes(bytes(broken))
        try:
            found = read(block)
        except (CorruptData, UnknownVersion):
            continue
        # Padding and unread sections do not matter.
        assert found == right, f"byte {at} of {name}"


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    block = write_block(tmp_path / "b", TWO)
    for name in ("index", "chunks/000001", "tombstones"):
        whole = (block / name).read_bytes()
        (block / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(CorruptData, match=name):
            read(block)
        (block / name).write_bytes(whole)


def test_blocks_are_found_in_a_folder_of_blocks(tmp_path: Path) -> None:
    blocks = [write_block(tmp_path / name, TWO) for name in ("01A", "01B")]
    assert blocks_at([str(tmp_path)]) == blocks
    assert blocks_at([f"file://{blocks[0]}"]) == blocks[:1]
    with pytest.raises(InvalidRequest, match="no block of Prometheus"):
        blocks_at([str(tmp_path / "01A" / "chunks")])
