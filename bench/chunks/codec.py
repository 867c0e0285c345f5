"""Column codec: bytes a sample, and CPU time to encode and to decode, beside pcodec, zstd and plain Gorilla XOR.

Node data counts what a slice stores: values with their headers, and one time axis for all series of a scrape. `fast` is
what memory holds, `dense` what chunks hold. Times are medians of process time over whole data sets, one thread; the
control is a copy of the same floats.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import zstandard
from numpy.typing import NDArray
from pcodec import ChunkConfig, standalone

from tsdb.codec.columns.columns import encode_times, scratch
from tsdb.codec.columns.columns_kernels import (
    decode_values_kernel,
    encode_values_dense_kernel,
    encode_values_kernel,
    values_bound,
)
from tsdb.codec.jit import kernel

NODE = Path(__file__).parents[2] / "tests" / "data" / "node_5s.parquet"
LENGTHS = (60, 240, 960)
NOISE_COLUMNS = 60
ZSTD_LEVEL = 3
PCODEC_LEVEL = 8
Values = NDArray[np.float64]


def main(argv: Sequence[str]) -> dict[str, object]:
    """Measure all data sets at all column lengths."""
    parser = argparse.ArgumentParser(prog="bench codec", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--data", type=Path, help="another Parquet file: labels, ts_ms, value")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, without the peers")
    arguments = parser.parse_args(argv)
    rounds = 3 if arguments.quick else arguments.rounds
    sets = {"node_5s": _series(NODE), "noise": [(np.empty(0, np.int64), values) for values in _noise()]}
    if arguments.data:
        sets[arguments.data.stem] = _series(arguments.data)
    return {
        name: {str(n): _measure(series, n, rounds, not arguments.quick) for n in LENGTHS}
        for name, series in sets.items()
    }


def _series(path: Path) -> list[tuple[NDArray[np.int64], Values]]:
    """(times, values) of each series, in time order."""
    table = pq.read_table(path)
    labels = table.column("labels").combine_chunks().indices.to_numpy()
    ts_ms, values = table.column("ts_ms").to_numpy(), table.column("value").to_numpy()
    order = np.lexsort((ts_ms, labels))
    cuts = np.flatnonzero(np.diff(labels[order])) + 1
    return list(zip(np.split(ts_ms[order], cuts), np.split(values[order], cuts), strict=True))


def _noise() -> list[Values]:
    """Gauges of full precision: normal, uniform and a walk."""
    rng = np.random.default_rng(1)
    kinds = (rng.normal(100, 10, (NOISE_COLUMNS, 960)), rng.random((NOISE_COLUMNS, 960)))
    return [*kinds[0], *kinds[1], *np.cumsum(rng.normal(0, 1, (NOISE_COLUMNS, 960)), axis=1)]


def _measure(series: list[tuple[NDArray[np.int64], Values]], n: int, rounds: int, peers: bool) -> dict[str, object]:
    columns = [values[at : at + n] for _, values in series for at in range(0, len(values) - n + 1, n)]
    flat = np.concatenate(columns)
    axes = {ts[at : at + n].tobytes() for ts, _ in series for at in range(0, len(ts) - n + 1, n)}
    axis_bytes = sum(len(encode_times(np.frombuffer(axis, np.int64) - _start(axis))) for axis in axes)
    result: dict[str, object] = {
        "columns": len(columns),
        "axes": len(axes),
        "axis_bytes_a_sample": round(axis_bytes / len(flat), 4),
        "fast": _ours(False, flat, n, rounds, axis_bytes),
        "dense": _ours(True, flat, n, rounds, axis_bytes),
        "copy_ns": round(_ns(flat.copy, rounds) / len(flat), 2),
    }
    if peers:
        config, zstd = ChunkConfig(compression_level=PCODEC_LEVEL), zstandard.ZstdCompressor(ZSTD_LEVEL)
        result["pcodec_bytes"] = _mean(columns, lambda each: len(standalone.simple_compress(each, config)))
        result["zstd_bytes"] = _mean(columns, lambda each: len(zstd.compress(each.tobytes())))
        result["gorilla_bytes"] = _mean(columns, lambda each: gorilla_bits(each.view(np.int64)) / 8)
    return result


def _start(axis: bytes) -> int:
    return int(np.frombuffer(axis, np.int64)[0])


def _ours(dense: bool, flat: Values, n: int, rounds: int, axis_bytes: int) -> dict[str, float]:
    data = np.empty(values_bound(n) * (len(flat) // n), np.uint8)
    work, back = scratch(n), np.empty_like(flat)
    size = _encode_all(dense, flat, n, data, work)
    if _decode_all(data, size, n, back) != size or (back.view(np.int64) != flat.view(np.int64)).any():
        raise AssertionError(f"columns of {n} did not come back")
    return {
        "bytes": round(size / len(flat), 4),
        "bytes_with_axes": round((size + axis_bytes) / len(flat), 4),
        "encode_ns": round(_ns(lambda: _encode_all(dense, flat, n, data, work), rounds) / len(flat), 2),
        "decode_ns": round(_ns(lambda: _decode_all(data, size, n, back), rounds) / len(flat), 2),
    }


def _ns(call: Callable[[], object], rounds: int) -> float:
    call()
    spent = []
    for _ in range(rounds):
        start = time.process_time_ns()
        call()
        spent.append(time.process_time_ns() - start)
    return statistics.median(spent)


def _mean(columns: list[Values], size: Callable[[Values], float]) -> float:
    return round(sum(size(np.ascontiguousarray(each)) for each in columns) / sum(map(len, columns)), 4)


@kernel
def _encode_all(
    dense: bool, flat: NDArray[np.float64], n: int, data: NDArray[np.uint8], work: NDArray[np.int64]
) -> int:
    pos = 0
    for start in range(0, len(flat), n):
        if dense:
            pos = encode_values_dense_kernel(flat, start, n, data, pos, work)
        else:
            pos = encode_values_kernel(flat, start, n, data, pos, work)
    return pos


@kernel
def _decode_all(data: NDArray[np.uint8], size: int, n: int, back: NDArray[np.float64]) -> int:
    pos = 0
    for start in range(0, len(back), n):
        pos = decode_values_kernel(data, pos, size, n, back, start)
    return pos


@kernel
def gorilla_bits(bits: NDArray[np.int64]) -> int:
    """Bits that Gorilla's XOR (VLDB 2015, section 4.1.2) takes for a column."""
    size, lead, width = 64, 0, -1
    for index in range(1, len(bits)):
        changed = bits[index] ^ bits[index - 1]
        size += 1
        if changed == 0:
            continue
        zeros = 0
        while zeros < 31 and not changed >> (63 - zeros) & 1:
            zeros += 1
        tail = 0
        while not changed >> tail & 1:
            tail += 1
        if width >= 0 and zeros >= lead and tail >= 64 - lead - width:
            size += 1 + width
        else:
            lead, width = zeros, 64 - zeros - tail
            size += 1 + 5 + 6 + width
    return size
