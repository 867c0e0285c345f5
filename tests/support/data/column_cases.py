"""Columns for tests of codecs: like real series, hard cases, and real columns of one host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

GOLDEN = Path(__file__).parents[2] / "golden"
NODE = Path(__file__).parents[2] / "data" / "node_5s.parquet"
Values = NDArray[np.float64]
Times = NDArray[np.int64]

STALE_BITS = 0x7FF0000000000002
STALE = np.array([STALE_BITS], np.uint64).view(np.float64)[0]
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, 5e-324, -5e-324, 2.2e-308, 1.7e308, 2.0**53, 2.0**53 + 2, -(2.0**63), 1e22, 0.1, 1 / 3]
)
NANS = np.array([0x7FF0000000000001, 0x7FF8000000000000, 0xFFF8000000001234, 0x7FFFFFFFFFFFFFFF], np.uint64)


def value_columns(n: int = 240) -> dict[str, Values]:
    """Name -> n values, the same on every machine: no transcendental function has a part in them."""
    rng = np.random.Generator(np.random.PCG64(7))
    steps = rng.integers(0, 1000, n)
    noise = rng.integers(1, 1 << 52, n) / (1 << 52)  # full precision, in (0, 1)
    stale = rng.integers(0, 1000, n) / 10
    stale[[0, n // 2, n - 1]] = STALE
    return {
        "zeros": np.zeros(n),
        "minus_zeros": np.full(n, -0.0),
        "constant_large": np.full(n, 25_165_824_000.0),
        "constant_third": np.full(n, 1 / 3),
        "one_step": np.where(np.arange(n) < n // 3, 7.0, 8.0),
        "counter": np.cumsum(steps).astype(np.float64),
        "counter_even": np.arange(n) * 15.0 + 4000,
        "counter_with_reset": np.concatenate([np.cumsum(steps[: n // 2]), np.cumsum(steps[n // 2 :])]).astype(
            np.float64
        ),
        "memory": 24_000_000_000.0 + 4096 * np.cumsum(steps - 500).astype(np.float64),
        "gauge_decimals": rng.integers(0, 10_000, n) / 100,
        "nanoseconds": rng.integers(20_000, 90_000, n) / 1e9,
        "milliseconds_multiplied": rng.integers(0, 10_000, n) * 0.001,
        "microseconds_divided_twice": rng.integers(0, 10_000_000, n) / 1000 / 1000,
        "average_over_minute": np.cumsum(steps - 500) / 60,
        "average_printed": np.array([float(f"{value:.15g}") for value in np.cumsum(steps) / 60]),
        "average_over_7": rng.integers(0, 10_000, n) / 7,
        "offset_ratio": np.cumsum(steps - 500) / 60 + 1000,
        "noise": 100 + 10 * noise,
        "noise_both_signs": (noise - 0.5) * 1e-200,
        "walk": 1000 + np.cumsum(noise - 0.5),
        "float32": noise.astype(np.float32).astype(np.float64),
        "few_distinct": noise[:6][rng.integers(0, 6, n)],
        "mostly_zero": np.where(rng.random(n) < 0.03, noise, 0.0),
        "spikes": np.where(rng.random(n) < 0.02, 1e12, 3.0),
        "stale_markers": stale,
        "special": SPECIAL[rng.integers(0, len(SPECIAL), n)],
        "nans": NANS[rng.integers(0, len(NANS), n)].view(np.float64),
        "random_bits": rng.integers(0, 1 << 64, n, np.uint64).view(np.float64),
        "above_2_53": (2.0**53 + 2 * steps).astype(np.float64),
    }


def time_columns(n: int = 240) -> dict[str, Times]:
    """Name -> n ascending timestamps."""
    rng = np.random.Generator(np.random.PCG64(8))
    regular = np.arange(n, dtype=np.int64) * 15_000
    extremes = np.sort(rng.integers(-(1 << 63), (1 << 63) - 1, n))
    extremes[0], extremes[-1] = -(1 << 63), (1 << 63) - 1
    return {
        "regular": regular,
        "gaps": np.delete(np.arange(n + 10, dtype=np.int64) * 15_000, np.arange(n // 2, n // 2 + 10)),
        "jittered": regular + rng.integers(0, 20, n),
        "bursts": np.cumsum(rng.integers(0, 2, n) * 60_000),
        "equal": np.full(n, 1_700_000_000_000),
        "extremes": extremes,
    }


def node_columns(n: int, every: int = 1) -> list[Values]:
    """Every `every`-th series of a host's real metrics, cut into columns of n values."""
    table = pq.read_table(NODE)
    labels = table.column("labels").combine_chunks()
    order = np.lexsort((table.column("ts_ms").to_numpy(), labels.indices.to_numpy()))
    values, codes = table.column("value").to_numpy()[order], labels.indices.to_numpy()[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))[::every]
    return [values[at : at + n] for start in starts for at in range(start, start + 1200 - n + 1, n)]


def bits(values: Values) -> list[int]:
    return [int(each) for each in values.view(np.int64)]
