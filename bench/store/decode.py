"""Measures the decoding and encoding of log records: records and samples per CPU second, checksum included.

Thin records are those of one small source (29 samples, 3 packs); bunched records fill 128 KiB (300 packs). A poll is as
large as a store's: 5,000 records or 16 MiB. The control is a copy of the same bytes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.crc32c import crc32c
from tsdb.codec.records.log_record import decode_records, encode_record, encoded_size

SHAPES = {"thin": (29, 3), "bunched": (6_200, 300)}  # Number of samples and of packs in a record.
POLL_RECORDS_MAX = 5_000
POLL_BYTES_MAX = 16 << 20
PackColumns = tuple[
    NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint64], NDArray[np.int64], NDArray[np.float64]
]  # Pack ids and lengths; then series ids, times and values.
T0_MS = 1_700_000_000_000


def main(argv: Sequence[str]) -> dict[str, object]:
    """Records and samples per CPU second for each size of record."""
    parser = argparse.ArgumentParser(prog="bench decode", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args(argv)
    result: dict[str, object] = {name: _shape(*shape, arguments.rounds) for name, shape in SHAPES.items()}
    data = np.random.default_rng(1).integers(0, 256, 1 << 20, dtype=np.uint8).tobytes()
    result["crc32c_gb_per_cpu_s"] = round(len(data) / _cpu_s(lambda: crc32c(data), arguments.rounds) / 1e9, 2)
    return result


def _shape(samples: int, packs: int, rounds: int) -> dict[str, float]:
    columns = _columns(samples, packs)
    record = encode_record(*columns)
    assert len(record) == encoded_size(packs, samples, shared_ts=False)
    count = min(POLL_RECORDS_MAX, POLL_BYTES_MAX // len(record))
    poll, starts = record * count, np.arange(count + 1, dtype=np.int64) * len(record)
    decoded = decode_records(poll, starts)
    assert not decoded.status.any(), "the records of the bench are sound"
    decode_s = _cpu_s(lambda: decode_records(poll, starts), rounds)
    encode_s = _cpu_s(lambda: encode_record(*columns), rounds)
    copy_s = _cpu_s(lambda: bytearray(poll), rounds)
    return {
        "record_bytes": len(record),
        "records_per_poll": count,
        "decode_records_per_cpu_s": round(count / decode_s),
        "decode_samples_per_cpu_s": round(count * samples / decode_s),
        "decode_ns_per_sample": round(decode_s / (count * samples) * 1e9, 2),
        "copy_ns_per_sample": round(copy_s / (count * samples) * 1e9, 2),
        "encode_records_per_cpu_s": round(1 / encode_s),
        "encode_ns_per_sample": round(encode_s / samples * 1e9, 2),
    }


def _columns(samples: int, packs: int) -> PackColumns:
    random = np.random.default_rng(samples)
    lengths = np.full(packs, samples // packs, dtype=np.uint32)
    lengths[: samples % packs] += 1
    ids = random.integers(0, 1 << 64, samples, dtype=np.uint64)
    ts_ms = T0_MS + random.integers(0, 5_000, samples)
    return random.integers(0, 1 << 64, packs, dtype=np.uint64), lengths, ids, ts_ms, random.normal(size=samples)


def _cpu_s(call: Callable[[], object], rounds: int) -> float:
    """Median CPU seconds of one call. A round repeats the call for 20 ms, long enough for the clock's resolution."""
    call()
    start = time.process_time()
    call()
    calls = max(1, int(0.02 / max(time.process_time() - start, 1e-6)))
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            call()
        times.append((time.process_time() - start) / calls)
    return statistics.median(times)
