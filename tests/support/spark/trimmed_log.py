"""A recorded log that lost its first half, the chunks of all its windows, and a history that has them."""

from __future__ import annotations

from spark_backfill.building.options import BuildOptions
from spark_backfill.jobs.rebuild.job import rebuild
from spark_backfill.worker_log import close_worker_log
from support.data.recorded_log import BASE_MS, RecordedLog
from support.servers.histories import HistoryFactory, write_rows, written
from support.servers.logs import LogFactory
from support.spark.local_rows import LOCAL
from support.spark.pipelines import build_options, still
from support.spark.spark import places
from tsdb.chunks.late_scan import Windows
from tsdb.chunks.records import hole_record
from tsdb.codec.chunk.key import ChunkKey, HoleKey, Kind, WindowKey, decode_key, encode_key
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.series_record import decode_announcement
from tsdb.history.interface import ChunkRow, ChunkStore, Loaded
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Log, LogRecord
from tsdb.log.records import read_to_end
from tsdb.log.topics import CREATE_TIME
from tsdb.model.time_set import DEMO
from tsdb.model.window import ceil_to

PARTITIONS = 2
RECORDED = RecordedLog(PARTITIONS, windows=6)
FIRST_MS = ceil_to(BASE_MS, DEMO.window_ms)
RANGE = Windows(FIRST_MS, FIRST_MS + 5 * DEMO.window_ms)
LOSS = HoleRecord(1, 0, FIRST_MS, FIRST_MS + 1_000, "corrupt_record", 100)

Records = dict[tuple[int, bytes], bytes]


class TrimmedGround:
    """The log and history that `fill` made."""

    def __init__(self, logs: LogFactory, histories: HistoryFactory) -> None:
        self.log: Log = logs.open(clock=still(RECORDED.end_ms))
        self.history: ChunkStore = histories.open()
        self.options: BuildOptions = build_options(self.log, places(logs, histories))
        self.wanted = self.records({})
        self._admin = logs.topics()

    @classmethod
    def fill(cls, logs: LogFactory, histories: HistoryFactory) -> None:
        """Make a recorded log, its chunks, and a history that has all of them. Then the log loses its first half."""
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        histories.create()
        made = cls(logs, histories)
        RECORDED.write(made.log)
        rebuild(LOCAL, made.options, RANGE)
        first = next(record for record in made._chunks(0) if _is_base(record))
        made.log.append_sync(CHUNKS, 0, first.value, key=cls._imported(first))
        hole = hole_record(LOSS)
        made.log.append_sync(CHUNKS, 1, hole.value, key=hole.key)
        made._load()
        made.load_through(RANGE.end_ms)
        made.trim(RECORDED.records // 2)
        made.log.close()  # One log in a process writes.
        close_worker_log()

    def trim(self, offset: int) -> None:
        """Drop the records below an offset."""
        self._admin.trim(METRICS, dict.fromkeys(range(PARTITIONS), offset))

    def load_through(self, end_ms: int) -> None:
        """Claim that history has all windows that end by then."""
        for number in range(PARTITIONS):
            loaded = Loaded(self.options.topic_id, number, RECORDED.records, end_ms)
            written(lambda done, of=loaded: self.history.write_loaded(of, done))  # type: ignore[misc]

    def ends(self) -> dict[int, int]:
        """Ends of the partitions of `chunks`."""
        return {number: marks.high for number, marks in self.log.watermarks(CHUNKS, range(PARTITIONS)).items()}

    def records(self, since: dict[int, int]) -> Records:
        """The last record of each key that was written to `chunks` since these offsets."""
        return {
            (number, record.key or b""): record.value or b""
            for number in range(PARTITIONS)
            for record in self._chunks(number)
            if record.offset >= since.get(number, 0)
        }

    def written_by(self, job_id: str | None = None) -> Records:
        """Rebuild the range; the records that it wrote."""
        before = self.ends()
        rebuild(LOCAL, self.options, RANGE, job_id=job_id)
        return self.records(before)

    def _chunks(self, number: int) -> list[LogRecord]:
        return list(read_to_end(self.log, CHUNKS, number))

    @staticmethod
    def _imported(base: LogRecord) -> bytes:
        key = decode_key(base.key or b"")
        assert isinstance(key, ChunkKey)
        return encode_key(ChunkKey(key.pack_id, key.window_start_ms, Kind.IMPORT, 7, 0))

    def _load(self) -> None:
        for number in range(PARTITIONS):
            keyed = [(decode_key(record.key or b""), record.value or b"") for record in self._chunks(number)]
            write_rows(self.history, [ChunkRow(key, value) for key, value in keyed if isinstance(key, ChunkKey)])
            for record in read_to_end(self.log, SERIES, number):
                announced = decode_announcement(record.key or b"", record.value or b"")
                written(lambda done, of=announced, to=number: self.history.write_series(of, to, done))  # type: ignore[misc]
        written(lambda done: self.history.write_hole(LOSS, done))


def _is_base(record: LogRecord) -> bool:
    key = decode_key(record.key or b"")
    return isinstance(key, ChunkKey) and key.kind is Kind.BASE


def of_history(records: Records, seam_ms: int) -> Records:
    """The chunks and holes of windows before the seam."""
    return {place: value for place, value in records.items() if _before(place[1], seam_ms)}


def _before(key: bytes, seam_ms: int) -> bool:
    found = decode_key(key)
    if isinstance(found, HoleKey):
        return found.start_ms < seam_ms
    return isinstance(found, ChunkKey) and found.window_start_ms < seam_ms


def of_log(records: Records, seam_ms: int) -> Records:
    """Base and late chunks and markers of windows from the seam on."""
    return {place: value for place, value in records.items() if _from_log(place[1], seam_ms)}


def _from_log(key: bytes, seam_ms: int) -> bool:
    found = decode_key(key)
    derived = isinstance(found, WindowKey) or (isinstance(found, ChunkKey) and found.kind in (Kind.BASE, Kind.LATE))
    return derived and found.window_start_ms >= seam_ms  # type: ignore[union-attr]  # both have it
