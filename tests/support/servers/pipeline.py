"""The whole way of a sample in this process, over any log and history. The test sets the time: real data is written
with its own times as broker times, so that hours pass in seconds, and a dict has the right answer of every read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from support.servers.chunkers import chunker_options, running, wait_emitted
from support.servers.loaders import is_loaded
from support.servers.logs import wait_until
from tsdb.codec.records.log_record import encode_record
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.log.interface import METRICS, SERIES, Appended, Log
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import DEMO
from tsdb.model.window import index_epoch

DATA = Path(__file__).parents[2] / "data" / "node_5s.parquet"
LOAD_WITHIN_S = 60.0
WINDOW_MS = DEMO.window_ms


class SetClock:
    """A wall clock that a test sets; the monotonic one is the machine's."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def set(self, now_ms: int) -> None:
        """Set the present time."""
        self._now_ms = now_ms


class NodeData:
    """Some of the series of a real host, on the grid of its scrapes.

    labels: canonical. ts_ms: int64 (t,), ascending. values: float64 (series, t), NaN where there is no sample.
    """

    def __init__(self, every: int, scrapes: int) -> None:
        table = pq.read_table(DATA)
        names = table["labels"].combine_chunks().dictionary_decode().to_pylist()
        chosen = sorted(set(names))[::every]
        row_of = {name: row for row, name in enumerate(chosen)}
        times = table["ts_ms"].to_numpy()
        self.ts_ms: NDArray[np.int64] = np.unique(times)[:scrapes]
        self.values = np.full((len(chosen), len(self.ts_ms)), np.nan)
        for name, ts, value in zip(names, times.tolist(), table["value"].to_pylist(), strict=True):
            if name in row_of and ts <= self.ts_ms[-1]:
                self.values[row_of[name], np.searchsorted(self.ts_ms, ts)] = value
        self.labels = [canonical_labels(json.loads(name)) for name in chosen]


class Pipeline:
    """Writes, and knows what was written. Rows are indexes of series in `labels`."""

    def __init__(self, log: Log, history: ChunkStore, labels: Sequence[bytes], now_ms: int) -> None:
        self.log = log
        self.history = history
        self.labels = list(labels)
        self.clock = SetClock(now_ms)
        self.partitions = log.partitions(METRICS)
        self._rule = PlacementRule()
        self._places = [self._rule.place(canonical) for canonical in labels]
        self._ids = np.array([series_id(canonical) for canonical in labels], np.uint64)
        self._partition = [partition_of(place.placement, self.partitions) for place in self._places]
        self._known: dict[int, dict[int, float]] = {row: {} for row in range(len(labels))}
        self._announced_ms = -(1 << 60)

    def write(self, samples: Sequence[tuple[int, int, float]], broker_ms: int) -> None:
        """(row, ts_ms, value) in order, at that broker time; series are announced as a gateway does."""
        self.clock.set(max(self.clock.now_ms(), broker_ms))
        if broker_ms - self._announced_ms >= WINDOW_MS // 2:
            self._announce(broker_ms)
        answers: list[object] = []
        for partition in range(self.partitions):
            mine = [sample for sample in samples if self._partition[sample[0]] == partition]
            if mine:
                self.log.append(METRICS, partition, self._record(mine), timestamp_ms=broker_ms, on_done=answers.append)
        self.log.flush(30.0)
        assert all(isinstance(answer, Appended) for answer in answers), answers
        for row, ts_ms, value in samples:
            self._known[row][ts_ms] = value

    def want(self, rows: Sequence[int], start_ms: int, end_ms: int) -> dict[bytes, list[tuple[int, bytes]]]:
        """The right answer of a read of these rows, values as their bytes; series without samples are left out."""
        found = {
            self.labels[row]: [
                (ts, np.float64(value).tobytes())
                for ts, value in sorted(self._known[row].items())
                if start_ms <= ts < end_ms
            ]
            for row in rows
        }
        return {canonical: samples for canonical, samples in found.items() if samples}

    @contextmanager
    def chunking(self, through_ms: int) -> Iterator[None]:
        """A chunker that has emitted every window that ends by then when the block begins."""
        with running(self.log, chunker_options(), self.clock) as chunker:
            wait_emitted(chunker, range(self.partitions), through_ms, LOAD_WITHIN_S)
            yield

    def load(self, through_ms: int) -> None:
        """A loader, until all on `chunks` and `series` is in history, and windows that end by then are loaded."""
        topic_id = self.log.topic_id(METRICS)

        def done() -> bool:
            loaded = self.history.loaded(topic_id).values()
            told = len(loaded) == self.partitions and min(one.emitted_through_ms for one in loaded) >= through_ms
            return loader.failure() is not None or (told and is_loaded(self.log))

        loader = Loader(self.log, self.history, LoaderOptions(DEMO, commit_interval_s=0.05), self.clock, seed=1)
        loader.start()
        try:
            wait_until(done, LOAD_WITHIN_S)
        finally:
            loader.close()
            assert loader.join(LOAD_WITHIN_S), "the loader does not end"

    def _announce(self, broker_ms: int) -> None:
        self._announced_ms = broker_ms
        oldest_ms = broker_ms - 40 * WINDOW_MS  # Late samples may be in an earlier index epoch.
        for row, canonical in enumerate(self.labels):
            number = int(self._ids[row])
            for epoch in {index_epoch(number, at_ms) for at_ms in (oldest_ms, broker_ms + WINDOW_MS)}:
                key, value = encode_announcement(number, epoch, self._places[row].pack_id, canonical)
                self.log.append(SERIES, self._partition[row], value, key=key, timestamp_ms=broker_ms, on_done=_checked)
        self.log.flush(30.0)

    def _record(self, samples: Sequence[tuple[int, int, float]]) -> bytes:
        # Rows of one pack together, and rows of one series in the given order: the later one wins.
        ordered = sorted(samples, key=lambda sample: self._places[sample[0]].pack_id)
        packs = np.array([self._places[row].pack_id for row, _, _ in ordered], np.uint64)
        pack_ids, lengths = np.unique(packs, return_counts=True)
        return encode_record(
            pack_ids,
            lengths.astype(np.uint32),
            self._ids[[row for row, _, _ in ordered]],
            np.array([ts for _, ts, _ in ordered], np.int64),
            np.array([value for _, _, value in ordered], np.float64),
        )


def _checked(answer: object) -> None:
    assert isinstance(answer, Appended), answer
