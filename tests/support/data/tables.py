"""Sample tables (labels JSON, ts_ms, value), compared bit for bit."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

DATA = Path(__file__).parents[2] / "data"
NODE_5S = DATA / "node_5s.parquet"


def read_table(source: Path | bytes) -> pa.Table:
    """Columns (labels, ts_ms, value) of a Parquet file; labels as plain strings, however the file encodes them."""
    table = pq.read_table(io.BytesIO(source) if isinstance(source, bytes) else source)
    return table.select(["labels", "ts_ms", "value"]).set_column(0, "labels", table["labels"].cast(pa.string()))


def canonical(table: pa.Table, *, shift_ms: int = 0) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray]:
    """(labels, series number, ts_ms, value bits as int64) of rows sorted by labels and time; labels as sorted JSON."""
    encoded = pc.dictionary_encode(table["labels"].cast(pa.string())).combine_chunks()
    names = [json.dumps(json.loads(text), sort_keys=True) for text in encoded.dictionary.to_pylist()]
    ranks = {name: rank for rank, name in enumerate(sorted(names))}
    codes = np.array([ranks[name] for name in names])[encoded.indices.to_numpy()]
    ts_ms = table["ts_ms"].to_numpy() + shift_ms
    bits = np.ascontiguousarray(table["value"].to_numpy()).view(np.int64)
    order = np.lexsort((ts_ms, codes))
    return sorted(names), codes[order], ts_ms[order], bits[order]


def assert_equal_samples(got: pa.Table, want: pa.Table, *, shift_ms: int = 0) -> None:
    """Every sample of `want`, moved by shift_ms, is in `got` bit for bit, and nothing else."""
    got_names, got_codes, got_ts, got_bits = canonical(got)
    names, codes, ts_ms, bits = canonical(want, shift_ms=shift_ms)
    assert len(got_ts) == len(ts_ms), f"{len(got_ts)} samples, want {len(ts_ms)}"
    assert got_names == names
    np.testing.assert_array_equal(got_codes, codes)
    np.testing.assert_array_equal(got_ts, ts_ms)
    np.testing.assert_array_equal(got_bits, bits)
