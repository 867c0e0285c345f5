"""Iceberg table: measures CPU and bytes a sample of emissions, late ones and newer versions, and the joining of files.

The data are the metrics of a host, 15 s apart, in windows of 4 h, each a chunk a pack; all windows lie in one day. The
controls are the bytes of the same chunks, and the CPU to decode them as a loader does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bench.measure import Spent, say, spent
from tsdb.codec.chunk.chunk import Fragment, decode_chunk, encode_chunk
from tsdb.history.iceberg.catalog import TableSettings, create_table, load_table, open_catalog
from tsdb.history.iceberg.emission import Emitted, emit
from tsdb.history.iceberg.maintain import compact
from tsdb.history.iceberg.state import TableState
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION

NODE = Path(__file__).parents[2] / "tests" / "data" / "node_5s.parquet"
NAME = "tsdb.samples"
SCRAPES = 600  # Half of the recording; a window of 4 h at 15 s has 960.
WINDOWS = 2
EMISSIONS = 20  # A window is emitted over two hours, so in many commits.
STEP_MS = 15_000
LATE_SERIES = 300
BUCKETS = 4


def main(argv: Sequence[str]) -> dict[str, object]:
    """ns and bytes a sample, seconds of late emissions."""
    parser = argparse.ArgumentParser(prog="bench iceberg_table", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer windows")
    windows = 1 if parser.parse_args(argv).quick else WINDOWS
    labels, fragments = _fragments(windows)
    chunks = [part for one in fragments for part in encode_chunk(one, window_ms=PRODUCTION.window_ms)]
    with spent() as decoding:
        for chunk in chunks:
            decode_chunk(chunk)
    samples = sum(one.samples for one in fragments)
    say(f"{samples} samples of {len(labels)} series in {len(chunks)} chunks")
    with tempfile.TemporaryDirectory() as folder:
        bench = _Table(Path(folder), labels)
        share = max(1, len(fragments) // (EMISSIONS * windows))
        with spent() as emitting:
            for first in range(0, len(fragments), share):
                bench.emit(fragments[first : first + share])
        small = bench.size, bench.files
        small_commit = emitting.cpu_s / bench.emissions
        joining = bench.compact()
        large = bench.size, bench.files
        new, newer = _late(fragments, 1), _late(fragments, 0)
        return {
            "samples": samples,
            "series": len(labels),
            "emissions": bench.emissions,
            "decode_ns_per_sample": round(decoding.cpu_s / samples * 1e9, 1),
            "emission_cpu_s": round(small_commit, 3),
            "whole_window_ns_per_sample": round(_whole(labels, fragments) / samples * 1e9, 1),
            "compact_ns_per_sample": round(joining.cpu_s / samples * 1e9, 1),
            "chunk_bytes_a_sample": round(sum(map(len, chunks)) / samples, 3),
            "table_bytes_a_sample": round(small[0] / samples, 3),
            "compacted_bytes_a_sample": round(large[0] / samples, 3),
            "files": {"emitted": small[1], "compacted": large[1]},
            "cpu_s": {
                "late": bench.timed([new]),
                "newer": bench.timed([newer]),
                "repeated_day": bench.timed(fragments),
            },
        }


def _whole(labels: dict[int, bytes], fragments: Sequence[Fragment]) -> float:
    """CPU seconds of all samples in one emission."""
    with tempfile.TemporaryDirectory() as folder:
        return _Table(Path(folder), labels).timed(fragments)


class _Table:
    def __init__(self, folder: Path, labels: dict[int, bytes]) -> None:
        self._catalog = open_catalog(TableSettings(f"sqlite:///{folder}/catalog.db"))
        create_table(self._catalog, NAME, BUCKETS)
        self._labels = labels
        self.emissions = 0

    def emit(self, fragments: Sequence[Fragment]) -> Emitted:
        self.emissions += 1
        state = TableState(self.emissions, "bench", "log", "chunks", {0: self.emissions})
        return emit(load_table(self._catalog, NAME), fragments, self._get, state)

    def timed(self, fragments: Sequence[Fragment]) -> float:
        """CPU seconds of one emission."""
        with spent() as one:
            self.emit(fragments)
        return round(one.cpu_s, 3)

    def compact(self) -> Spent:
        with spent() as joining:
            list(compact(self._catalog, NAME, 2))
        return joining

    @property
    def size(self) -> int:
        return self._total("total-files-size")

    @property
    def files(self) -> int:
        return self._total("total-data-files")

    def _total(self, name: str) -> int:
        snapshot = load_table(self._catalog, NAME).current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return int(snapshot.summary.additional_properties[name])

    def _get(self, ids: Iterable[int]) -> list[bytes | None]:
        return [self._labels[one] for one in ids]


def _fragments(windows: int) -> tuple[dict[int, bytes], list[Fragment]]:
    """The labels of all series, and a fragment for each pack and window, window by window."""
    table = pq.read_table(NODE)
    names = table["labels"].combine_chunks().dictionary_decode().to_pylist()
    values = table["value"].to_numpy()
    rows: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        rows.setdefault(name, []).append(at)
    rule, labels, packs = PlacementRule(), {}, dict[int, list[tuple[int, list[int]]]]()
    for name, mine in rows.items():
        canonical = canonical_labels(json.loads(name))
        labels[series_id(canonical)] = canonical
        packs.setdefault(rule.place(canonical).pack_id, []).append((series_id(canonical), mine))
    found = []
    for window in range(windows):
        for pack_id, series in packs.items():
            scraped = slice(window * SCRAPES, (window + 1) * SCRAPES)
            inside = [(one, mine[scraped]) for one, mine in sorted(series)]
            found.append(_fragment(pack_id, window * PRODUCTION.window_ms, inside, values))
    return labels, found


def _fragment(
    pack_id: int, start_ms: int, series: Sequence[tuple[int, list[int]]], values: NDArray[np.float64]
) -> Fragment:
    counts = [len(rows) for _, rows in series]
    order = np.full(sum(counts), start_ms + 1)
    return Fragment(
        pack_id,
        start_ms,
        np.array([one for one, _ in series], np.uint64),
        np.concatenate(([0], np.cumsum(counts))),
        np.concatenate([start_ms + STEP_MS * np.arange(count) for count in counts]),
        values[np.concatenate([np.array(rows) for _, rows in series])],
        order,
    )


def _late(fragments: Sequence[Fragment], shift_ms: int) -> Fragment:
    """One newer sample for each of some series: at a known time, or shifted to one between two scrapes."""
    of = max(fragments[: len(fragments) // 2], key=lambda one: one.series)
    series = of.series_id[:LATE_SERIES]
    count = len(series)
    ts_ms = of.ts_ms[of.sample_start[:count]] + shift_ms
    order = np.full(count, int(of.order.max()) + 10 + shift_ms)
    return Fragment(of.pack_id, of.window_start_ms, series, np.arange(count + 1), ts_ms, np.ones(count), order)
