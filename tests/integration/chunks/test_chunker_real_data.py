"""A host's own metrics through the chunk stage: 20 windows and more, with late, repeated and out-of-order scrapes.

The chunks of every window, merged by order, hold exactly what was written, bit for bit.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from support.data.tables import NODE_5S
from support.servers.chunkers import FastClock, assert_uninterrupted, chunker_options, running, wait_emitted, windows_in
from support.servers.logs import LogFactory
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind, decode_key
from tsdb.codec.records.log_record import encode_record, encode_tick
from tsdb.codec.records.series_record import encode_announcement
from tsdb.log.interface import METRICS, SERIES, Log
from tsdb.log.topics import CREATE_TIME
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import SliceLengths, TimeSet
from tsdb.model.window import index_epoch

MINUTE_MS = 60_000
TIMES = TimeSet("four minutes", 4 * MINUTE_MS, 5_000, 15_000, 8_000, 10_000, 20_000, 10 * MINUTE_MS, 86_400_000)
SLICES = SliceLengths(20_000, 2 * MINUTE_MS)
EVERY = 5  # Every fifth series is used: enough for every kind of column.
WITHIN_S = 120.0

Samples = dict[tuple[int, int], int]
"""(series id, ts_ms) -> bits of the value."""


class Scrapes:
    """The data by scrape: ids and packs of all series, and the rows of each moment."""

    def __init__(self) -> None:
        table = pq.read_table(NODE_5S)
        labels = table.column("labels").combine_chunks()
        self.canonical = [canonical_labels(json.loads(text)) for text in labels.dictionary.to_pylist()]
        ids = np.array([series_id(each) for each in self.canonical], np.uint64)
        packs = np.array([PlacementRule().place(each).pack_id for each in self.canonical], np.uint64)
        of = labels.indices.to_numpy()
        kept = of % EVERY == 0
        self.ids, self.packs = ids[of[kept]], packs[of[kept]]
        self.ts_ms, self.values = table.column("ts_ms").to_numpy()[kept], table.column("value").to_numpy()[kept]
        self.moments = np.unique(self.ts_ms)

    def rows(self, moment: int) -> NDArray[np.int64]:
        """The packs of one scrape, in pack order."""
        rows = np.flatnonzero(self.ts_ms == moment)
        return rows[np.lexsort((self.ids[rows], self.packs[rows]))]

    def record(self, rows: NDArray[np.int64], change: float = 0.0) -> bytes:
        """One scrape as a log record. change: is added to every value."""
        packs, lengths = np.unique(self.packs[rows], return_counts=True)
        values = self.values[rows] + change if change else self.values[rows]
        return encode_record(packs, lengths.astype(np.uint32), self.ids[rows], self.ts_ms[rows], values)


def write_all(log: Log, scrapes: Scrapes, rng: random.Random) -> tuple[Samples, int]:
    """Append every scrape: most at once, some minutes late, some twice with other values. Returns the samples that
    readers must see, and the end.
    """
    first_ms = int(scrapes.moments[0])
    for canonical in scrapes.canonical:
        number = series_id(canonical)
        pack = PlacementRule().place(canonical).pack_id
        key, value = encode_announcement(number, index_epoch(number, first_ms), pack, canonical)
        log.append(SERIES, 0, value, key=key, timestamp_ms=first_ms, on_done=lambda answer: None)
    appends: list[tuple[int, int, float]] = []
    for moment in scrapes.moments.tolist():
        late_ms = rng.choice([20_000, 3 * MINUTE_MS, 11 * MINUTE_MS]) if rng.random() < 0.1 else 0
        appends.append((moment + late_ms, moment, 0.0))
        if rng.random() < 0.05:
            appends.append((moment + rng.choice([0, 8 * MINUTE_MS]), moment, 1.0))
    appends.sort(key=lambda each: each[0])
    seen: Samples = {}
    for broker_ms, moment, change in appends:
        rows = scrapes.rows(moment)
        log.append(METRICS, 0, scrapes.record(rows, change), timestamp_ms=broker_ms, on_done=lambda answer: None)
        bits = (scrapes.values[rows] + change if change else scrapes.values[rows]).view(np.int64).tolist()
        seen.update(zip(((number, moment) for number in scrapes.ids[rows].tolist()), bits, strict=True))
    end_ms = appends[-1][0] + TIMES.window_ms + TIMES.grace_ms
    log.append_sync(METRICS, 0, encode_tick(), timestamp_ms=end_ms)
    return seen, end_ms


def test_chunks_of_a_hosts_own_metrics_hold_every_sample_once_merged(tmp_path: Path) -> None:
    with LogFactory(f"sqlite:///{tmp_path / 'log.db'}", "") as logs:
        logs.create(1, timestamp_type=CREATE_TIME)
        log = logs.open()
        want, end_ms = write_all(log, Scrapes(), random.Random(9))
        with running(log, chunker_options(TIMES, SLICES), FastClock(end_ms, 1.0)) as chunker:
            through_ms = (end_ms - TIMES.grace_ms) // TIMES.window_ms * TIMES.window_ms
            wait_emitted(chunker, [0], through_ms, WITHIN_S)
        written = assert_uninterrupted(log, 0, TIMES, SLICES)
    assert len(windows_in(written)) >= 20
    got: dict[tuple[int, int], tuple[int, int]] = {}
    kinds: set[Kind] = set()
    for key, value in written:
        decoded = decode_key(key)
        if isinstance(decoded, ChunkKey):
            kinds.add(decoded.kind)
            chunk = decode_chunk(value)
            ids = np.repeat(chunk.series_id, np.diff(chunk.sample_start)).tolist()
            places = zip(ids, chunk.ts_ms.tolist(), strict=True)
            ranked = zip(chunk.order.tolist(), chunk.value.view(np.int64).tolist(), strict=True)
            for place, candidate in zip(places, ranked, strict=True):
                got[place] = max(got.get(place, candidate), candidate)
    assert kinds == {Kind.BASE, Kind.LATE}
    assert {place: bits for place, (_, bits) in got.items()} == want
