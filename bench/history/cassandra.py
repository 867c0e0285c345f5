"""Cassandra: compares statements, bytes on disk and read time of one chunk a pack with those of one chunk a series and
of one row a sample.

The same samples (W(S), 5 series a pack at 60 s) are written in three layouts on one node: our tables; our tables with a
chunk for each series; and a table with a row for each sample, by series and day, compressed by the server. Each layout
is flushed, then read back into arrays: all series over the whole range, and one series of each of ten packs.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import BatchStatement, BatchType
from numpy.typing import NDArray

from bench.measure import median_spent, say, spent
from bench.workload import INTERVAL_MS, SAMPLES, Workload
from stack.cassandra import CassandraNode
from tsdb.codec.chunk.chunk import Fragment, decode_chunk, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.records.series_record import Announcement
from tsdb.history import statement_metrics as metrics
from tsdb.history.cassandra.session import LazySession
from tsdb.history.cassandra.store import CassandraStore
from tsdb.history.interface import ChunkStore, Loaded, OnDone, WindowRange
from tsdb.history.merge import merge
from tsdb.history.open import open_history_admin
from tsdb.history.settings import HistorySettings, Hosts
from tsdb.history.shared_settings import shared_rows
from tsdb.history.writes import WriteGroup, write_sync
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import index_epoch

WINDOW_MS = PRODUCTION.window_ms
START_MS = 500 * 24 * 3600 * 1000
DAY_MS = 24 * 3600 * 1000
PARTITIONS = 18
ROWS = "rows"  # Keyspace of the table that has one row a sample.
CREATE_ROWS = (
    f"CREATE TABLE {ROWS}.samples (series_id bigint, day int, ts_ms bigint, value double,"
    " PRIMARY KEY ((series_id, day), ts_ms)) WITH compaction = {'class': 'UnifiedCompactionStrategy'}"
)
BATCH_ROWS = 240  # Loading uses batches of one partition; each row counts as one statement.
BATCHES_INFLIGHT = 64


@dataclass(frozen=True, slots=True)
class Data:
    """values (S, n): sample i of a series is at START_MS + i x 60 s."""

    workload: Workload
    windows: int

    @property
    def samples(self) -> int:
        """Number of samples of all series."""
        return int(self.workload.values.size)

    @property
    def per_series(self) -> int:
        """Number of samples of one series."""
        return int(self.workload.values.shape[1])

    @property
    def range(self) -> WindowRange:
        """The range of all windows."""
        return WindowRange(START_MS, START_MS + self.windows * WINDOW_MS)

    def fragment(self, rows: NDArray[np.int64], pack_id: int, window: int) -> Fragment:
        """Samples of these series in one window."""
        rows = rows[np.argsort(self.workload.series_ids[rows])]
        start_ms = START_MS + window * WINDOW_MS
        values = self.workload.values[rows, window * SAMPLES : (window + 1) * SAMPLES].ravel()
        return Fragment(
            pack_id,
            start_ms,
            self.workload.series_ids[rows],
            np.arange(len(rows) + 1, dtype=np.int64) * SAMPLES,
            np.tile(start_ms + np.arange(SAMPLES, dtype=np.int64) * INTERVAL_MS, len(rows)),
            values,
            np.full(len(values), 99, np.int64),
        )


def main(argv: Sequence[str]) -> dict[str, object]:
    """Measure each layout: statements, bytes on disk a sample, ms and CPU ms of each read."""
    parser = argparse.ArgumentParser(prog="bench cassandra", description=__doc__)
    parser.add_argument("--series", type=int, default=600)
    parser.add_argument("--windows", type=int, default=6, help="of 4 h")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a sixth of the series, 3 rounds")
    arguments = parser.parse_args(argv)
    series, rounds = (arguments.series // 6, 3) if arguments.quick else (arguments.series, arguments.rounds)
    data = Data(Workload(series, PARTITIONS, samples=SAMPLES * arguments.windows), arguments.windows)
    with CassandraNode() as node:
        return {
            "series": series,
            "samples": data.samples,
            "chunk_a_pack": _chunks(node, data, rounds, "packs", _by_pack(data)),
            "chunk_a_series": _chunks(node, data, rounds, "series", _by_series(data)),
            "row_a_sample": _rows(node, data, rounds),
        }


def _ten(data: Data) -> list[int]:
    """Index of one series in each of ten packs, spread over all packs."""
    firsts = np.unique(data.workload.pack_ids, return_index=True)[1]
    return sorted(firsts[:: max(1, len(firsts) // 10)][:10].tolist())


def _by_pack(data: Data) -> dict[int, NDArray[np.int64]]:
    pack_ids = data.workload.pack_ids
    return {int(pack_id): np.flatnonzero(pack_ids == pack_id) for pack_id in np.unique(pack_ids)}


def _by_series(data: Data) -> dict[int, NDArray[np.int64]]:
    return {int(number): np.array([row]) for row, number in enumerate(data.workload.series_ids)}


def _chunks(
    node: CassandraNode, data: Data, rounds: int, keyspace: str, packs: dict[int, NDArray[np.int64]]
) -> dict[str, object]:
    say(f"{len(packs)} packs x {data.windows} windows")
    url = f"cassandra://{node.host}:{node.port}/{keyspace}"
    with open_history_admin(url) as admin:
        admin.create(shared_rows(MetaSettings(PARTITIONS)), replication=1)
    with CassandraStore(Hosts.parse(url), HistorySettings()) as store:
        before = _statements()
        with spent() as writing:
            _load(store, data, packs)
        statements = {kind: count - before[kind] for kind, count in _statements().items()}
        ten = [pack_id for pack_id, rows in packs.items() if set(rows.tolist()) & set(_ten(data))]
        return {
            "statements": statements,
            "samples_per_statement": round(data.samples / sum(statements.values()), 1),
            # Series and metric names are written once in 30 days, not with each window.
            "samples_per_statement_without_index": round(
                data.samples / (statements[metrics.CHUNK] + statements[metrics.LOADED]), 1
            ),
            "write_s": round(writing.wall_s, 2),
            "write_cpu_s": round(writing.cpu_s, 2),
            **_disk(node, keyspace, data),
            "read_all": _read(lambda: _read_chunks(store, list(packs), data), data.samples, rounds),
            "read_one_series_of_10_packs": _read(
                lambda: _read_chunks(store, ten, data), sum(len(packs[one]) for one in ten) * data.per_series, rounds
            ),
        }


def _load(store: ChunkStore, data: Data, packs: dict[int, NDArray[np.int64]]) -> None:
    """Write as a loader does: chunks, the index, and one progress row for each partition and window."""
    labels, ids = data.workload.labels, data.workload.series_ids

    def begin(done: OnDone) -> None:
        group = WriteGroup(len(packs) * data.windows + len(ids) + PARTITIONS * data.windows, done)
        for pack_id, rows in packs.items():
            for row in rows.tolist():
                number = int(ids[row])
                announcement = Announcement(number, index_epoch(number, START_MS), pack_id, labels[row])
                store.write_series(announcement, int(data.workload.partitions[row]), group)
        for window in range(data.windows):
            for pack_id, rows in packs.items():
                fragment = data.fragment(rows, pack_id, window)
                (value,) = encode_chunk(fragment, window_ms=WINDOW_MS)
                store.write(ChunkKey(pack_id, fragment.window_start_ms, Kind.BASE, 100, 0), value, group)
            for partition in range(PARTITIONS):
                store.write_loaded(Loaded("bench", partition, 100 + window, fragment.window_start_ms), group)

    write_sync(begin, 600.0)


def _read_chunks(store: ChunkStore, packs: list[int], data: Data) -> int:
    """Read and merge the chunks of these packs over the range; return the number of samples."""
    samples = 0
    rows = (row for piece in store.read(packs, data.range) for row in piece)
    for _, group in itertools.groupby(rows, key=lambda row: row.key.pack_id):
        samples += merge([decode_chunk(row.value) for row in group]).samples
    return samples


def _rows(node: CassandraNode, data: Data, rounds: int) -> dict[str, object]:
    say(f"{data.samples} rows")
    with ExitStack() as stack:
        lazy = LazySession(Hosts((node.host,), node.port, "packs"), HistorySettings())
        stack.callback(lazy.close)
        session = lazy.get().session
        session.execute(
            f"CREATE KEYSPACE {ROWS} WITH replication = {{'class': 'NetworkTopologyStrategy',"
            " 'replication_factor': 1}",
            timeout=60.0,
        )
        session.execute(CREATE_ROWS, timeout=60.0)
        with spent() as writing:
            _load_rows(session, data)
        series = data.workload.series_ids.view(np.int64).tolist()
        ten = [series[row] for row in _ten(data)]
        return {
            "statements": {"row": data.samples, "batch_while_loading": -(-data.samples // BATCH_ROWS)},
            "samples_per_statement": 1.0,
            "write_s": round(writing.wall_s, 2),
            "write_cpu_s": round(writing.cpu_s, 2),
            **_disk(node, ROWS, data),
            "read_all": _read(lambda: _read_rows(session, series, data), data.samples, rounds),
            "read_one_series_of_10_packs": _read(
                lambda: _read_rows(session, ten, data), len(ten) * data.per_series, rounds
            ),
        }


def _load_rows(session: Session, data: Data) -> None:
    insert = session.prepare(f"INSERT INTO {ROWS}.samples (series_id, day, ts_ms, value) VALUES (?, ?, ?, ?)")
    waiting = []
    for row, number in enumerate(data.workload.series_ids.view(np.int64).tolist()):
        for at in range(0, data.workload.values.shape[1], BATCH_ROWS):
            batch = BatchStatement(BatchType.UNLOGGED)
            values = data.workload.values[row, at : at + BATCH_ROWS].tolist()
            for index, value in enumerate(values, at):
                ts_ms = START_MS + index * INTERVAL_MS
                batch.add(insert, (number, ts_ms // DAY_MS, ts_ms, value))
            waiting.append(session.execute_async(batch))
            if len(waiting) >= BATCHES_INFLIGHT:
                waiting.pop(0).result()
    for future in waiting:
        future.result()


def _read_rows(session: Session, series: Iterable[int], data: Data) -> int:
    """Read as users of this driver do: 32 statements at once, default page size. Returns the number of samples."""
    select = session.prepare(f"SELECT ts_ms, value FROM {ROWS}.samples WHERE series_id = ? AND day = ?")
    days = range(START_MS // DAY_MS, -(-data.range.end_ms // DAY_MS))
    keys = [(number, day) for number in series for day in days]
    samples = 0
    for _, rows in execute_concurrent_with_args(session, select, keys, concurrency=32, results_generator=True):
        found = list(rows)
        ts_ms, values = np.array([row[0] for row in found], np.int64), np.array([row[1] for row in found])
        samples += min(len(ts_ms), len(values))
    return samples


def _statements() -> dict[str, int]:
    return {kind: int(metrics.statements_total.labels(kind)._value.get()) for kind in metrics.WRITES}


def _disk(node: CassandraNode, keyspace: str, data: Data) -> dict[str, object]:
    node.access.flush()
    tables = {table: size for table, size in node.access.data_bytes(keyspace).items() if size}
    return {
        "disk_bytes": tables,
        "disk_bytes_per_sample": round(sum(tables.values()) / data.samples, 3),
    }


def _read(call: Callable[[], int], samples: int, rounds: int) -> dict[str, object]:
    got = call()
    assert got == samples, f"read {got} of {samples} samples"
    took = median_spent(call, rounds)
    return {
        "samples": got,
        "ms": round(took.wall_s * 1e3, 1),
        "client_cpu_ms": round(took.cpu_s * 1e3, 1),
        "samples_per_s": round(got / took.wall_s),
    }
