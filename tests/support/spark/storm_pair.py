"""A log and a history with a late storm in both, for jobs on Spark, and loaders that come and go."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spark_backfill.places import Places
from support.data.late_storm import EVER, LateStorm, acked, fragments_left
from support.servers.histories import META, HistoryFactory
from support.servers.loaders import OPTIONS, is_loaded
from support.servers.logs import LogFactory, records_of, wait_until
from support.servers.logs import read_to_end as events_to_end
from support.servers.node import Node
from support.servers.querier_node import QuerierNode
from support.spark.spark import places
from tsdb.codec.chunk.key import ChunkKey, Kind, decode_key
from tsdb.codec.records.log_record import encode_tick
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import Loader
from tsdb.log.interface import CHUNKS, METRICS, Log, LogRecord
from tsdb.model.clock import SystemClock
from tsdb.model.labels import canonical_labels, series_id

ORDERS_BELOW = 1_000  # Fragments of a storm before any fold.


@dataclass
class StormPair:
    """Made by the factories, empty at first. A loader runs where `loading` says so."""

    log_factory: LogFactory
    history_factory: HistoryFactory

    def __post_init__(self) -> None:
        self.log_factory.create(partitions=META.partitions)
        self.log, self.history = self.log_factory.open(), self.history_factory.open()
        self.storm = LateStorm(partitions=META.partitions)

    @property
    def places(self) -> Places:
        return places(self.log_factory, self.history_factory)

    def loading(self) -> Loading:
        return Loading(self.log, self.history)

    def filled(self) -> None:
        """The storm is in history, and the log as long as the orders in it say."""
        self.tick(ORDERS_BELOW)
        self.storm.write(self.log)
        with self.loading():
            wait_until(lambda: is_loaded(self.log))
            # Later loaders then go on where this one stopped.
            wait_until(lambda: len(self.history.loaded(self.log.topic_id(METRICS))) == META.partitions)

    def tick(self, count: int) -> None:
        """Ticks in every partition of the log."""
        for partition in range(META.partitions):
            for _ in range(count):
                self.log.append(METRICS, partition, encode_tick(), on_done=acked)
        self.log.flush(60.0)

    def late(self, packs: Collection[int] | None = None) -> None:
        """Append one more late fragment for every window of these packs to the log."""
        order = max(self._highs())
        self.tick(order + 1 - min(self._highs()))
        self.storm.write_late(self.log, order, packs)

    @contextmanager
    def querying(self) -> Iterator[QuerierNode]:
        """A store of this log, and a querier over it and the history."""
        for partition in range(META.partitions):
            # The store no longer answers for the past after an import's tick.
            self.log.append_sync(METRICS, partition, encode_tick(import_tick=True))
        topic_id = self.log.topic_id(METRICS)
        with (
            Node(self.log).wait_ready_on_entry() as node,
            QuerierNode([node.address], self.history, topic_id=topic_id, partitions=META.partitions) as querier,
        ):
            yield querier

    def _highs(self) -> list[int]:
        return [marks.high for marks in self.log.watermarks(METRICS, range(META.partitions)).values()]

    def left(self) -> dict[tuple[int, int], set[tuple[Kind, int]]]:
        """The storm's fragments with a row, by (pack, window)."""
        return fragments_left(self.history, self.storm.partition)

    def chunk_records(self) -> list[LogRecord]:
        """Keys of chunks; markers are skipped."""
        starts = {(CHUNKS, number): 0 for number in range(META.partitions)}
        with self.log.reader(starts) as reader:
            found = records_of(events_to_end(reader, META.partitions))
        return [record for record in found if isinstance(decode_key(record.key or b""), ChunkKey)]


class Loading:
    """A loader for one block."""

    def __init__(self, log: Log, store: ChunkStore) -> None:
        self._loader = Loader(log, store, OPTIONS, SystemClock(), seed=1)

    def __enter__(self) -> None:
        self._loader.start()

    def __exit__(self, *raised: object) -> None:
        self._loader.close()
        assert self._loader.join(60.0)


def assert_answers(querier: QuerierNode, storm: LateStorm) -> None:
    """Check that a Select over all of a storm gives the right samples, bit for bit. Raises the error of a refusal."""
    found: dict[tuple[int, int], int] = {}
    result = querier.client.select(f'{{__name__="{storm.name}"}}', EVER.start_ms, EVER.end_ms)
    for labels, ts_ms, value in result:
        series = series_id(canonical_labels(labels))
        found |= {(series, at): bits for at, bits in zip(ts_ms.tolist(), value.view("u8").tolist(), strict=True)}
    wanted = {key: bits for samples in storm.wanted.values() for key, (_, bits) in samples.items()}
    assert found == wanted
