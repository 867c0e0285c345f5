"""History read: 24 h x 600 series, of which memory has the last 4 h and history the rest, in this process, up to the
last message. Once with whole packs, once with one series in five, which shows the over-read: samples decoded for each
sample requested.

The second part is the cost of a querier in front of a store when memory alone answers: 3,500 series x 240 samples, read
from the store and through the querier alternately.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import grpc
import numpy as np

from bench.heads import new_head, polls, register
from bench.measure import percentiles_ms, say
from bench.store.read import below
from bench.workload import INTERVAL_MS, SERIES_PER_INSTANCE, SERIES_PER_PACK, PartitionShare, Workload
from tsdb.client.select import SelectQuery
from tsdb.codec.chunk.chunk import Fragment, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.records.log_record import decode_records
from tsdb.codec.records.series_record import Announcement
from tsdb.head.head import Head
from tsdb.history.interface import ChunkStore, Loaded
from tsdb.history.open import open_history, open_history_admin
from tsdb.history.shared_settings import ensure_history
from tsdb.model.clock import SystemClock
from tsdb.model.errors import TsdbError
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import index_epoch
from tsdb.query.history import samples as history_samples
from tsdb.query.history.index import HistoryIndex
from tsdb.query.service import QuerierService
from tsdb.query.sources import HistorySource, Sources
from tsdb.query.stores.local import LocalStore, OneStore
from tsdb.reader.read_call import SelectLimits
from tsdb.replay.replay import PartitionProgress
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition
from tsdb.store.readiness import ReadinessEvaluator
from tsdb.store.reads import StoreReads
from tsdb.v1 import reader_pb2

WINDOW_MS = PRODUCTION.window_ms
WINDOWS = 6
PER_WINDOW = WINDOW_MS // INTERVAL_MS
TOPIC_ID = "bench"
SERIES = 70_000
BROAD_INSTANCES, MEMORY_INSTANCES = 120, 700  # An instance has five series of a metric.
METRICS = SERIES_PER_INSTANCE // SERIES_PER_PACK
RECORD_SAMPLES = 50_000


class _Caller:
    """A gRPC caller without a deadline that never cancels."""

    def time_remaining(self) -> float | None:
        return None

    def is_active(self) -> bool:
        return True

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return True

    def peer(self) -> str:
        return ""


_CALLER = cast(grpc.ServicerContext, _Caller())


def main(argv: Sequence[str]) -> dict[str, object]:
    """Measures ms a query, samples a second, bytes of history and over-read, and the cost of the querier."""
    parser = argparse.ArgumentParser(prog="bench history_read", description=__doc__)
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--history", default="", help="URL of an empty history; absent: a file in a scratch folder")
    parser.add_argument("--quick", action="store_true", help="10 queries")
    arguments = parser.parse_args(argv)
    queries = 10 if arguments.quick else arguments.queries
    workload = Workload(arguments.series, 1, samples=PER_WINDOW)
    with tempfile.TemporaryDirectory(prefix="bench-history-") as folder:
        url = arguments.history or f"sqlite:///{folder}/history.sqlite"
        with open_history_admin(url) as admin:
            ensure_history(admin, MetaSettings(1))
        with open_history(url) as history:
            return _Bench(workload, history, queries).run()


class _Bench:
    def __init__(self, workload: Workload, history: ChunkStore, queries: int) -> None:
        self._workload = workload
        self._queries = queries
        self._end_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        self._start_ms = self._end_ms - WINDOWS * WINDOW_MS
        seam_ms = self._end_ms - WINDOW_MS
        _fill(history, workload, workload.shares[0], range(self._start_ms, seam_ms, WINDOW_MS))
        self._store = _served(_head(workload, seam_ms))
        source = HistorySource(history, HistoryIndex(history), WINDOW_MS)
        local = OneStore(LocalStore(self._store, SystemClock()))
        self._querier = QuerierService(Sources(local, TOPIC_ID, range(1), source), SelectLimits())

    def run(self) -> dict[str, object]:
        return {
            "history_24h_whole_packs": self._spanning(BROAD_INSTANCES, ""),
            "history_24h_one_series_in_five": self._spanning(BROAD_INSTANCES, ',mode="mode_2"'),
            "memory_alone": self._passed_through(),
        }

    def _spanning(self, instances: int, more: str) -> dict[str, object]:
        """Queries of one metric over `instances` instances, with the next metric each time."""
        counters = (history_samples.chunks_total, history_samples.bytes_total, history_samples.decoded_total)
        before = [_value(counter) for counter in (*counters, history_samples.wanted_total)]
        times, cpu, samples = [], time.process_time(), 0
        for turn in range(self._queries):
            started = time.perf_counter()
            samples = _drain(self._querier, self._request(turn, instances, self._start_ms, more))
            times.append(time.perf_counter() - started)
        cpu = time.process_time() - cpu
        chunks, size, decoded, wanted = (
            (_value(counter) - was) / self._queries
            for counter, was in zip((*counters, history_samples.wanted_total), before, strict=True)
        )
        result: dict[str, object] = {
            "samples": samples,
            "ms": percentiles_ms(times),
            "samples_per_second": round(samples / statistics.median(times)),
            "cpu_ms_per_query": round(cpu / self._queries * 1e3, 1),
            "chunks": chunks,
            "history_bytes": size,
            "history_bytes_per_sample": round(size / decoded, 3),
            "over_read": round(decoded / wanted, 2),
        }
        say(f"{instances} instances{more}: {result}")
        return result

    def _passed_through(self) -> dict[str, object]:
        """Query the store and the querier alternately, so that other load on the machine affects both."""
        took: dict[str, list[float]] = {"store": [], "querier": []}
        services: dict[str, Any] = {"store": self._store, "querier": self._querier}
        start_ms = self._end_ms - WINDOW_MS
        for turn in range(4 * self._queries):
            request = self._request(turn // 2, MEMORY_INSTANCES, start_ms, "", columns=True)
            name = ("store", "querier")[turn % 2]
            started = time.perf_counter()
            _drain(services[name], request)
            took[name].append(time.perf_counter() - started)
        return {name: percentiles_ms(times) for name, times in took.items()}

    def _request(
        self, turn: int, instances: int, start_ms: int, more: str, *, columns: bool = False
    ) -> reader_pb2.SelectRequest:
        metric = turn % METRICS
        selector = f'bench_metric_{metric:02d}{{instance=~"{below(instances)}"{more}}}'
        query = SelectQuery(selector, start_ms, self._end_ms, encoding="columns" if columns else "raw")
        return cast(reader_pb2.SelectRequest, query.call().request)


def _drain(service: Any, request: reader_pb2.SelectRequest) -> int:
    """Serialise every message, as the server does; return the number of samples in the trailer."""
    last = b""
    for message in service.Select(request, _CALLER):
        # A store's messages are encoded already.
        last = message if isinstance(message, bytes) else message.SerializeToString()
    samples = reader_pb2.SelectResponse.FromString(last).trailer.samples
    assert samples, "nothing was answered"
    return int(samples)


def _fill(history: ChunkStore, workload: Workload, share: PartitionShare, windows: Sequence[int]) -> None:
    """Write the packs of a share in these windows, as the chunk stage does, and their announcements."""
    with _Written() as written:
        ends = np.cumsum(share.pack_lengths.astype(np.int64))
        for pack, (start, end) in enumerate(zip(ends - share.pack_lengths, ends, strict=True)):
            rows, ids = share.rows[start:end], share.series_ids[start:end]
            for window_ms in windows:
                times = np.tile(window_ms + np.arange(PER_WINDOW, dtype=np.int64) * INTERVAL_MS, len(rows))
                fragment = Fragment(
                    int(share.pack_ids[pack]),
                    window_ms,
                    ids,
                    np.arange(len(rows) + 1, dtype=np.int64) * PER_WINDOW,
                    times,
                    np.ascontiguousarray(workload.values[rows]).ravel(),
                    np.zeros(len(times), np.int64),
                )
                for part, value in enumerate(encode_chunk(fragment, window_ms=WINDOW_MS)):
                    key = ChunkKey(fragment.pack_id, window_ms, Kind.BASE, 1, part)
                    history.write(key, value, written.one())
        for row in share.rows.tolist():
            series, pack = int(workload.series_ids[row]), int(workload.pack_ids[row])
            for epoch in {index_epoch(series, ms) for ms in (windows[0], windows[-1])}:
                history.write_series(Announcement(series, epoch, pack, workload.labels[row]), 0, written.one())
    with _Written() as last:
        history.write_loaded(Loaded(TOPIC_ID, 0, 1 << 40, windows[-1] + WINDOW_MS), last.one())


class _Written:
    """A context manager that waits at its end until every write with one of its callbacks is answered."""

    def __init__(self) -> None:
        self._waiting = threading.Semaphore(0)
        self._begun = 0

    def one(self) -> Callable[[TsdbError | None], None]:
        """A new callback, for one write."""
        self._begun += 1
        return self._done

    def _done(self, error: TsdbError | None) -> None:
        assert error is None, error
        self._waiting.release()

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *_: object) -> None:
        for _answered in range(self._begun):
            self._waiting.acquire()


def _head(workload: Workload, start_ms: int) -> Head:
    share = workload.shares[0]
    head = new_head(since_offset=1, coverage_start_ms=start_ms)
    register(head, workload, share, start_ms)
    for poll in polls(workload, share, start_ms, PER_WINDOW, RECORD_SAMPLES, records_max=500, bytes_max=8 << 20):
        records = decode_records(poll.values, poll.value_starts)
        head.unknown_ids(records)
        head.apply(records, poll.offsets + 1, poll.broker_ms)
        head.maintain()
    return head


def _served(head: Head) -> StoreReads:
    clock = SystemClock()
    progress = PartitionProgress(head.next_offset)
    partition = Partition(0, TOPIC_ID, head, progress, ReadinessEvaluator(), clock)
    threading.Thread(target=_keep_fresh, args=(partition,), daemon=True).start()
    partition.observe_high_watermark(head.next_offset, clock.monotonic())
    return StoreReads(TOPIC_ID, {0: partition}, AppliedSignal(clock), SelectLimits())


def _keep_fresh(partition: Partition) -> None:
    """Observe the high watermark once a second, as a store at the end of its log does."""
    while True:
        partition.observe_high_watermark(partition.head.next_offset, time.monotonic())
        time.sleep(1.0)


def _value(counter: Any) -> float:
    return float(counter._value.get())
