"""merge-late: cost of a run, and percentiles of reads of history before and after it. The control has no late data.

Packs of 5 series with 240 samples a window. Each window has a base and `--late` late fragments, over an embedded log
and history in a scratch folder. A read is one pack over all windows, decoded and merged, as in a querier.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.measure import percentiles_ms, say
from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from spark_backfill.places import Places
from spark_backfill.session import SessionOptions, session
from spark_backfill.writing.loader_wait import JobEnds, wait_for_loader
from tsdb.codec.chunk.chunk import Fragment, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind, encode_key
from tsdb.codec.records.series_record import encode_announcement
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.history.open import open_history, open_history_admin
from tsdb.history.shared_settings import ensure_history
from tsdb.log.interface import CHUNKS, SERIES, Log
from tsdb.log.open import open_log, open_topics
from tsdb.log.topics import topic_specs
from tsdb.model.clock import SystemClock
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.meta import MetaSettings
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import index_epoch
from tsdb.query.history.samples import HistoryQuery, history_samples

META = MetaSettings(partitions=3)
WINDOW_MS = PRODUCTION.window_ms
FIRST_MS = 118_000 * WINDOW_MS
SERIES_OF_PACK, SAMPLES = 5, 240
LATE_SAMPLES = 3  # Samples of each series in a late fragment.
READS = 300
WITHIN_S = 600.0


def main(argv: Sequence[str]) -> dict[str, object]:
    """Seconds and folds a second of the two runs; reads with late fragments, folded, and without late fragments."""
    parser = argparse.ArgumentParser(prog="bench spark_merge_late", description=__doc__)
    parser.add_argument("--packs", type=int, default=200)
    parser.add_argument("--windows", type=int, default=12)
    parser.add_argument("--late", type=int, default=40, help="late fragments of each window")
    parser.add_argument("--quick", action="store_true", help="fewer packs")
    arguments = parser.parse_args(argv)
    packs = 20 if arguments.quick else arguments.packs
    shape = {"packs": packs, "windows": arguments.windows, "late": arguments.late}
    with tempfile.TemporaryDirectory(prefix="tsdb-bench-") as folder:
        with _Made(Path(folder) / "calm", packs, arguments.windows, 0) as calm:
            control = calm.reads()
        with _Made(Path(folder) / "storm", packs, arguments.windows, arguments.late) as storm:
            return {**shape, "reads_ms_without_late": control, **_folded(storm)}


def _folded(storm: _Made) -> dict[str, object]:
    before = storm.reads()
    options = MergeLateOptions(apply=True, fragments_max=1, delete_after_ms=0)
    runs = []
    with session(SessionOptions("local[*]", "bench", ui=False)) as spark:
        # The session's first job starts the workers.
        merge_late(spark, storm.places, META, MergeLateOptions(end_ms=0))
        for name in ("fold", "delete"):
            began = time.perf_counter()
            result = merge_late(spark, storm.places, META, options)
            seconds = time.perf_counter() - began
            say(f"{name}: {seconds:.1f} s, {result.figures()}")
            runs.append((seconds, result.figures()))
    (fold_s, folded), (delete_s, deleted) = runs
    return {
        "fold_s": round(fold_s, 2),
        "folds_a_second": round(int(str(folded["folded"])) / fold_s, 1),
        "delete_s": round(delete_s, 2),
        "rows_deleted": deleted["rows_deleted"],
        "per_chunk": [folded["per_chunk_before"], folded["per_chunk_after"], deleted["per_chunk_after"]],
        "reads_ms_with_late": before,
        "reads_ms_folded": storm.reads(),
    }


@dataclass(frozen=True, slots=True)
class _Pack:
    pack_id: int
    partition: int
    labels: list[bytes]

    @classmethod
    def numbered(cls, number: int) -> _Pack:
        base = {"__name__": "bench", "job": "bench", "instance": f"i{number}"}
        labels = [canonical_labels(base | {"cpu": str(cpu)}) for cpu in range(SERIES_OF_PACK)]
        place = PlacementRule().place(labels[0])
        return cls(place.pack_id, partition_of(place.placement, META.partitions), labels)

    @property
    def ids(self) -> NDArray[np.uint64]:
        """Series ids, uint64 ascending."""
        return np.sort(np.array([series_id(one) for one in self.labels], np.uint64))


class _Made:
    """A filled log, and a history with a loader. A context manager, which waits on entry until all is loaded."""

    def __init__(self, folder: Path, packs: int, windows: int, late: int) -> None:
        folder.mkdir()
        self.places = Places(f"sqlite:///{folder}/log.db", "", f"sqlite:///{folder}/history.db")
        with open_topics(self.places.log) as topics:
            for spec in topic_specs(META.partitions, replication=1):
                topics.create(spec)
        with open_history_admin(self.places.history) as admin:
            ensure_history(admin, META)
        self._log: Log = open_log(self.places.log)
        self._history: ChunkStore = open_history(self.places.history)
        self._packs = [_Pack.numbered(number) for number in range(packs)]
        self._windows = windows
        self._loader = Loader(self._log, self._history, LoaderOptions(PRODUCTION), SystemClock())
        self._fill(late)

    def __enter__(self) -> _Made:
        self._loader.start()
        wait_for_loader(self._log, JobEnds.of(self._log, range(META.partitions)), WITHIN_S, SystemClock())
        return self

    def __exit__(self, *raised: object) -> None:
        self._loader.close()
        self._loader.join(30.0)
        self._history.close()
        self._log.close()

    def reads(self) -> dict[str, float]:
        """Percentiles in ms of reads, each of one pack and all its windows."""
        source, seconds = random.Random(1), []
        for _ in range(READS):
            pack = source.choice(self._packs)
            query = HistoryQuery([pack.pack_id], pack.ids, [], FIRST_MS, FIRST_MS + self._windows * WINDOW_MS)
            began = time.perf_counter()
            samples = sum(
                one.samples for one in history_samples(self._history, query, WINDOW_MS, _corrupt, lambda samples: None)
            )
            seconds.append(time.perf_counter() - began)
            assert samples == SERIES_OF_PACK * SAMPLES * self._windows, f"{samples} samples"
        return percentiles_ms(seconds[READS // 10 :])

    def _fill(self, late: int) -> None:
        source = random.Random(2)
        for pack in self._packs:
            for window_ms in range(FIRST_MS, FIRST_MS + self._windows * WINDOW_MS, WINDOW_MS):
                self._announce(pack, window_ms)
                for kind, order, at in _fragments(late, source):
                    self._send(pack, window_ms, kind, order, at)
            self._log.flush(WITHIN_S)

    def _announce(self, pack: _Pack, window_ms: int) -> None:
        for canonical in pack.labels:
            number = series_id(canonical)
            for epoch in {index_epoch(number, window_ms), index_epoch(number, window_ms + WINDOW_MS - 1)}:
                key, value = encode_announcement(number, epoch, pack.pack_id, canonical)
                self._log.append(SERIES, pack.partition, value, key=key, on_done=_acked)

    def _send(self, pack: _Pack, window_ms: int, kind: Kind, order: int, at: Sequence[int]) -> None:
        ts_ms = window_ms + np.tile(np.array(at, np.int64) * 60_000, SERIES_OF_PACK)
        fragment = Fragment(
            pack.pack_id,
            window_ms,
            pack.ids,
            np.arange(SERIES_OF_PACK + 1, dtype=np.int64) * len(at),
            ts_ms,
            np.round(np.sin(ts_ms + order) * 100, 2),
            np.full(len(ts_ms), order, np.int64),
        )
        for part, value in enumerate(encode_chunk(fragment, window_ms=WINDOW_MS)):
            key = encode_key(ChunkKey(pack.pack_id, window_ms, kind, order, part))
            self._log.append(CHUNKS, pack.partition, value, key=key, on_done=_acked)


def _fragments(late: int, source: random.Random) -> Iterator[tuple[Kind, int, Sequence[int]]]:
    yield Kind.BASE, 100, range(SAMPLES)
    for number in range(late):
        yield Kind.LATE, 200 + number, sorted(source.sample(range(SAMPLES), LATE_SAMPLES))


def _acked(answer: object) -> None:
    assert not isinstance(answer, Exception), answer


def _corrupt(row: object, error: Exception) -> None:
    raise error
