"""World: every component of one system over one log and one history, the oracle that knows all of it, and the checks
that hold at every moment.
"""

from __future__ import annotations

import random
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc

from ingest.appends.partition_queue import WAIT_S
from ingest.limits import IngestLimits
from ingest.pipeline import WritePipeline
from support.fakes.manual_timer import ManualTimer
from support.servers.queriers import Context, querier_over
from support.simulation.groups import Member, SimulatedGroup
from support.simulation.history import SimulatedHistory
from support.simulation.job_state import Jobs
from support.simulation.log import SimulatedLog
from support.simulation.oracle import (
    Answered,
    Entry,
    Oracle,
    Request,
    Source,
    Violation,
    check_answers,
    samples_of_chunk,
    source_of,
)
from support.simulation.processes import (
    LIMITS,
    KnownStores,
    SimulatedChunker,
    SimulatedLoader,
    SimulatedStore,
    States,
    WatchedStore,
)
from support.simulation.profile import Profile
from support.simulation.times import BEGIN_MS, DAY_MS, SMALL_RESOLUTIONS_MS, TIMES
from tsdb.client.watch import WatchState
from tsdb.codec.chunk.chunk import PART_BYTES_MIN
from tsdb.codec.chunk.key import ChunkKey, HoleKey, decode_key
from tsdb.codec.chunk.marker import HoleRecord, decode_hole
from tsdb.head.holes import CORRUPT_RECORD
from tsdb.head.state import HeadLimits
from tsdb.history.interface import ChunkStore, Loaded
from tsdb.log.downsampled import read_downsampled
from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, METRICS, SERIES, Log, LogRecord, Position, TopicPartition
from tsdb.model.clock import ManualClock
from tsdb.model.placement import PlacementRule
from tsdb.model.window import index_epoch
from tsdb.query.history.downsampled import Resolutions
from tsdb.query.history.index_generation import IndexGeneration
from tsdb.query.service import QuerierService
from tsdb.v1 import common_pb2

CHUNKERS, LOADERS = "chunks", "loader"
SOURCES = 24  # Numbered series, of which a schedule meets the first ones first.

APPEND_WAIT_MS = round(WAIT_S * 1000) + 1  # Longer than parts wait for each other.
MEMORY_FOLDER = "/dev/shm"
READER_WAITS_S = 1.0  # A read waits this long for the records of `after`.
CHECK = "check"
READ_MS_MAX = 6_000  # With one move more it is less than DELETE_AFTER_MS.


@dataclass
class Watcher:
    """A client's watch. state: the state that outlives its connections."""

    selector: str
    partitions: tuple[int, ...]
    state: WatchState


@dataclass
class Derived:
    """samples: the samples of history, by series and time, when a run of downsampling began to derive from them."""

    samples: dict[int, dict[int, float]]
    end_ms: int | None = None


class MovingCaller(Context):
    """A reader that waits for records for WAIT_S. before_check: called wherever its read checks that it waits."""

    def __init__(self, before_check: Callable[[str], None]) -> None:
        super().__init__(READER_WAITS_S)
        self._before_check = before_check

    def is_active(self) -> bool:
        self._before_check(CHECK)
        return super().is_active()


class World:
    """`stores`, `chunkers`, `loaders`: processes that live, the zombies among them first. counts: number of
    each event.
    """

    def __init__(self, seed: int, profile: Profile) -> None:
        rng = random.Random(f"world {seed}")
        self.profile = profile
        self.partitions = rng.choice(profile.partitions)
        self.detail_random = random.Random(f"details {seed}")  # Apart, so that samples are those without details.
        self.has_details = self.detail_random.random() < profile.details.worlds
        self.clock = ManualClock(BEGIN_MS + rng.randrange(2 * TIMES.window_ms))
        self.timer = ManualTimer(self.clock)
        self.requests: list[Request] = []
        self.groups: dict[str, SimulatedGroup] = {}
        self.log = SimulatedLog(self.partitions, self.clock, TIMES.ahead_ms, self._member)
        self.log.faults = profile.faults
        self.log.on_stored.append(self._stored)
        self.log.spares = self._spares
        self.history = SimulatedHistory()
        self.history.failing, self.history.series_share = profile.failing, profile.series_share
        self.history.on_loaded = self.check_loaded
        self.sources = [source_of(number, self.partitions) for number in range(SOURCES)]
        self.oracle = Oracle(self.sources, TIMES)
        self.met = profile.series
        self.known_stores = KnownStores()
        self.stated: States = {}
        self.moved = False  # Whether stores may have gone on in the middle of the newest read.
        self.corrupt: defaultdict[int, list[HoleRecord]] = defaultdict(list)
        self.damaged_chunks: list[tuple[int, int]] = []  # Partitions and offsets.
        self.lost_end = rng.random() < 0.5  # Whether a series ends once its announcement is lost.
        self.forgotten: set[int] = set()  # Packs whose announcements the log lost.
        self.stores: list[SimulatedStore] = []
        self.chunkers: list[SimulatedChunker] = []
        self.loaders: list[SimulatedLoader] = []
        self.counts: Counter[str] = Counter()
        self.values = 0
        self.names = 0
        self.records_max = rng.choice([1, 3, 10, 5_000])
        self.part_bytes_max = PART_BYTES_MIN
        self.written: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
        self._holes: defaultdict[int, list[HoleRecord]] = defaultdict(list)
        self._best: defaultdict[int, dict[tuple[int, int], int]] = defaultdict(dict)
        self.moves: list[Callable[[World, random.Random], None]] = []
        self.jobs = Jobs()
        self.watchers: list[Watcher] = []
        self.derived: list[Derived] = []  # The last run that ended, and the runs after it.
        self.backup_folder: Path | None = None  # State of a running backup.
        self.backups: list[Path] = []
        self.compacted: Counter[tuple[str, int]] = Counter()  # Below these offsets topics were compacted.
        self.went_back = False  # Whether history was restored.
        self._thread = threading.get_ident()
        # The folder is in memory where the system has one, because snapshots are synchronised with the disk.
        self._scratch = tempfile.TemporaryDirectory(dir=MEMORY_FOLDER if Path(MEMORY_FOLDER).is_dir() else None)
        self.start_gateway()
        self.start_querier()
        self.start_store(2 * TIMES.least_hold_ms)
        self.start_chunker()
        self.start_loader(seed)

    # Processes.

    def start_gateway(self) -> None:
        """Start a gateway with empty caches."""
        limits = IngestLimits(series_table_bytes=64 << 10)
        self.gateway = WritePipeline(
            self.log, PlacementRule(), self.partitions, TIMES, limits, self.clock, timer=self.timer
        )

    def start_querier(self) -> None:
        """Start a querier with empty caches."""
        self.querier = self._querier_over(self.known_stores)
        self._alone = {watched.name: self._querier_over(_one(watched)) for watched in self.known_stores.watched}

    def _querier_over(self, stores: KnownStores) -> QuerierService:
        return querier_over(
            stores,
            cast(ChunkStore, self.history),
            window_ms=TIMES.window_ms,
            partitions=self.partitions,
            topic_id=self.log.topic_id(METRICS),
            resolutions=Resolutions(lambda: read_downsampled(cast(Log, self.log)), self.clock, SMALL_RESOLUTIONS_MS),
            generation=IndexGeneration(self.log, self.log.topic_id(METRICS), self.clock).now,
        )

    def start_store(self, hold_ms: int, folder: Path | None = None, limits: HeadLimits = LIMITS) -> None:
        """Start one more store. folder: folder with the snapshots of an earlier store."""
        folder = folder or self.new_folder()
        self.names += 1
        store = SimulatedStore(f"store-{self.names}", self.log, self.clock, hold_ms, folder, limits)
        self.counts["heads restored"] += store.restored
        self.stores.append(store)
        watched = WatchedStore(store, self.history_read, self.stated)
        self.known_stores.watched.append(watched)
        self._alone[store.name] = self._querier_over(_one(watched))

    def new_folder(self) -> Path:
        """A folder that does not exist yet."""
        self.names += 1
        return Path(self._scratch.name) / str(self.names)

    def kill_store(self, index: int) -> None:
        """A store and its memory are gone."""
        gone = self.stores.pop(index)
        gone.close()
        del self._alone[gone.name]
        self.known_stores.watched.pop(index)

    def start_chunker(self) -> None:
        """Start a chunker. It takes the partitions of the chunker before it, which continues as a zombie."""
        self.chunkers.append(SimulatedChunker(self.log, self.clock, self.records_max, self.part_bytes_max))

    def zombies(self) -> list[SimulatedChunker]:
        """Chunkers that were replaced and live."""
        owner = self.groups[CHUNKERS].owner
        return [chunker for chunker in self.chunkers if chunker.group is not owner]

    def start_loader(self, seed: int) -> None:
        self.loaders.append(SimulatedLoader(self.log, self.history, self.clock, seed))

    def caller(self) -> grpc.ServicerContext:
        """A reader. Components may move wherever its read checks whether it is canceled."""
        return cast(grpc.ServicerContext, MovingCaller(self.history_read))

    def history_read(self, kind: str) -> None:
        """A reader is in the middle of its read of history: other components may move now."""
        self.history.before_read(kind)

    @contextmanager
    def moving(self, rng: random.Random) -> Iterator[None]:
        """While it lasts components move in the middle of reads."""
        under_way = self.moved = False
        late_ms = self.clock.now_ms() + READ_MS_MAX
        profile = self.profile

        def move(kind: str) -> None:
            nonlocal under_way
            if profile.moments and kind not in profile.moments:
                return
            if kind == CHECK and not (profile.checks and rng.random() < profile.checks):
                return
            # Components are stepped on the driver's thread alone. A querier waits for its reads on other threads.
            if under_way or threading.get_ident() != self._thread or rng.random() >= profile.busy:
                return
            under_way = True
            try:
                for _ in range(rng.randint(1, profile.moves_max)):
                    if self.clock.now_ms() < late_ms:
                        rng.choice(self.moves)(self, rng)
                        self.moved |= kind == CHECK
            finally:
                under_way = False

        self.history.before_read = move
        try:
            yield
        finally:
            self.history.before_read = lambda kind: None

    # Methods for the driver.

    def seed(self, seed: int) -> None:
        """Seed of the faults in the next step."""
        self.log.random, self.history.random = random.Random(f"log {seed}"), random.Random(f"history {seed}")
        for group in self.groups.values():
            group.random = random.Random(f"{group.group_id} {seed}")

    def check_going(self) -> None:
        """Raises Violation when a component has stopped although nothing is lost."""
        if self.profile.lossy:
            return
        stopped = [store.stopped for store in self.stores] + [chunker.stopped for chunker in self.chunkers]
        if any(stopped):
            raise Violation(f"stopped: {stopped}")

    def calm_groups(self) -> None:
        """From now on every commit is answered."""
        for group in self.groups.values():
            group.refused = group.lost_ack = 0.0

    def keep_owners(self) -> None:
        """End the zombies, and start every kind of component that does not live."""
        for chunker in self.chunkers[:-1]:
            chunker.close()
        for loader in self.loaders[:-1]:
            loader.kill()
        del self.chunkers[:-1], self.loaders[:-1]
        if not self.chunkers:
            self.start_chunker()
        if not self.loaders:
            self.start_loader(0)

    def answer_requests(self) -> None:
        """Every request is answered, and an accepted one names the records that hold its samples."""
        while self.log.answer() or self._end_waits():
            pass
        check_answers(self.requests, self.oracle, self.counts)

    def _end_waits(self) -> bool:
        """End the waits of open requests for one another. Returns whether a request was open."""
        if all(request.answer.done() for request in self.requests):
            return False
        self.clock.advance(APPEND_WAIT_MS)
        return self.timer.fire() > 0

    def round(self, *, maintain: bool) -> None:
        """Step every component once or a few times."""
        for _ in range(4):
            self.chunkers[-1].step()
            self.log.answer()
            self.loaders[-1].step()
            self.history.answer(100)
        for store in self.stores:
            store.step(5_000)
            if maintain:
                store.maintain()
        self.check_going()
        self.clock.advance(300)

    def work(self) -> None:
        """Chunk stage and loader go on, while a job waits for both."""
        if self.chunkers:
            self.chunkers[-1].step()
        self.log.answer()
        self.load(2)

    def load(self, steps: int) -> None:
        """The loader goes on, while a job waits for it."""
        for _ in range(steps if self.loaders else 0):
            self.loaders[-1].step()
            self.history.answer(20)
            self.clock.advance(50)

    def queriers(self) -> list[QuerierService]:
        """The querier over all stores, and over each store alone: it would choose the deepest."""
        return [self.querier, *self._alone.values()]

    def deep_queriers(self) -> list[QuerierService]:
        """The queriers whose stores' memory is reached by a history with everything loaded."""
        deep = [store.name for store in self.stores if store.hold_ms >= TIMES.least_hold_ms and store.limits is LIMITS]
        return [self.querier, *(self._alone[name] for name in deep)]

    def where(self) -> str:
        """The progress of every component, as text."""
        committed = {place: at.next_offset for group in self.groups.values() for place, at in group.committed.items()}
        highs = {place: stretch.high for place, stretch in self.log.stretches.items() if stretch.high}
        return f"ends {highs}, committed {committed}, loaded {self.history.loaded_rows}, waiting {self.history.waiting}"

    def close(self) -> None:
        """Release the resources of all processes."""
        for store in self.stores:
            store.close()
        for chunker in self.chunkers:
            chunker.close()
        self._scratch.cleanup()

    def _member(self, group_id: str) -> Member:
        if group_id not in self.groups:
            self.groups[group_id] = SimulatedGroup(group_id, self.log, self.clock, self.check_commit)
            self.groups[group_id].refused = self.groups[group_id].lost_ack = self.profile.failing
        return Member(self.groups[group_id])

    # Losses.

    @property
    def has_losses(self) -> bool:
        """Whether anything was lost that holes have to name."""
        losses = any(self.corrupt.values()), bool(self.forgotten), bool(self.damaged_chunks)
        return self.profile.lossy or any(losses)

    def allows_holes(self, rng: random.Random) -> bool:
        """Whether a read accepts holes: half of the reads, once the log has holes."""
        return self.has_losses and rng.random() < 0.5

    def check_holes_named(
        self,
        state: common_pb2.PartitionState,
        range_ms: tuple[int, int],
        stated: Answered,
        holes: Iterable[common_pb2.Hole],
    ) -> None:
        """Raises Violation unless the holes of an answer name every corrupt record that it touches."""
        named = list(holes)
        for loss in self.corrupt[state.partition]:
            touches = loss.start_ms < range_ms[1] and loss.end_ms > range_ms[0]
            is_named = any(hole.start_ms <= loss.start_ms and hole.end_ms >= loss.end_ms for hole in named)
            if touches and loss.record_offset <= stated.applied_offset and not is_named:
                raise Violation(f"{range_ms} of partition {state.partition} is answered without a word of {loss}")

    # Invariants, checked at every step.

    def _stored(self, topic: str, partition: int, record: LogRecord, damaged: bool) -> None:
        if topic == METRICS:
            self.oracle.add_record(partition, record, lost=damaged)
            if damaged:
                start_ms, end_ms = record.broker_ms - TIMES.accept_past_ms, record.broker_ms + TIMES.ahead_ms + 1
                loss = HoleRecord(partition, 0, start_ms, end_ms, CORRUPT_RECORD, record.offset)
                self.corrupt[partition].append(loss)
                self.counts["records damaged"] += 1
        elif topic == SERIES and damaged:
            self.forgotten |= {source.pack_id for source in self.sources if source.canonical in (record.value or b"")}
            self.counts["announcements lost"] += 1
        elif topic == CHUNKS and record.value is not None and record.key is not None:
            key = decode_key(record.key)
            if damaged:
                self.damaged_chunks.append((partition, record.offset))
                self.counts["chunks damaged"] += 1
            if isinstance(key, ChunkKey):
                self._chunk_stored(partition, record.key, record.value)
            elif isinstance(key, HoleKey):
                self._holes[partition].append(decode_hole(record.value))

    def _spares(self, topic: str, key: bytes, value: bytes) -> bool:
        """Markers, and a series of two epochs: it can be known by one and missing in the index of the other, which no
        hole names."""
        if topic == CHUNKS:
            return not isinstance(decode_key(key), ChunkKey)
        return topic == SERIES and any(
            source.canonical in value
            and index_epoch(source.series_id, BEGIN_MS - 2 * DAY_MS) != index_epoch(source.series_id, BEGIN_MS + DAY_MS)
            for source in self.sources
        )

    def _chunk_stored(self, partition: int, key: bytes, value: bytes) -> None:
        before = self.written[partition].setdefault(key, value)
        named = decode_key(key)
        if before != value and not (isinstance(named, ChunkKey) and named.pack_id in self.forgotten):
            raise Violation(f"{decode_key(key)} of partition {partition} was written again with other bytes")
        best = self._best[partition]
        for place, (order, _) in samples_of_chunk(value).items():
            best[place] = max(order, best.get(place, -1))

    def check_commit(self, group_id: str, positions: Mapping[TopicPartition, Position]) -> None:
        """A chunker commits only what is in `chunks`, a loader only what is in history or among the dead letters."""
        if group_id == LOADERS:
            self._check_dead_letters(positions)
        if group_id != CHUNKERS:
            return
        for (_, partition), position in positions.items():
            emitted_ms = int(position.metadata.split(" ")[2])
            for series, ts_ms, entry in self._promised(partition, position.next_offset, emitted_ms):
                if self._best[partition].get((series, ts_ms), -1) < entry.order:
                    raise Violation(
                        f"commit of partition {partition} at {position} passes series {series} at {ts_ms}, {entry}"
                    )

    def _check_dead_letters(self, positions: Mapping[TopicPartition, Position]) -> None:
        for (topic, partition), position in positions.items():
            letters = {record.value for record in self.log.records(CHUNKS_DLQ, partition)}
            for record in self.log.records(topic, partition) if topic == CHUNKS else ():
                passed = record.offset < position.next_offset and (partition, record.offset) in self.damaged_chunks
                if passed and record.value not in letters:
                    raise Violation(f"{position} of partition {partition} passes {record}, which is no dead letter")

    def _promised(self, partition: int, position: int, emitted_ms: int) -> Iterator[tuple[int, int, Entry]]:
        """Samples below a position in emitted windows, except for named losses."""
        for series, ts_ms, entry in self.oracle.below(partition, position, emitted_ms):
            pack_ids = 0, self.oracle.sources[series].pack_id
            if not any(
                hole.start_ms <= ts_ms < hole.end_ms and hole.pack_id in pack_ids for hole in self._holes[partition]
            ):
                yield series, ts_ms, entry

    def check_loaded(self, loaded: Loaded) -> None:
        """Check that all samples covered by `loaded` are in history, and all their series."""
        if loaded.topic_id != self.log.topic_id(METRICS):
            return  # Nothing is claimed here; see tsdb.history.claims.
        held: dict[tuple[int, int], int] = {}
        for series, ts_ms, entry in self._promised(loaded.partition, loaded.position, loaded.emitted_through_ms):
            source = self.oracle.sources[series]
            if not held:
                held = self._held(loaded.partition)
            if held.get((series, ts_ms), -1) < entry.order and not self._has_hole(source, ts_ms):
                raise Violation(f"{loaded}, but history lacks series {series} at {ts_ms}, {entry}")
            epoch = index_epoch(series, ts_ms)
            name = b"m0" if b"m0" in source.canonical else b"m1"
            if series not in self.history.announced.get((epoch, name), {}):
                raise Violation(f"{loaded}, but history does not know series {series} in epoch {epoch}")

    def _has_hole(self, source: Source, ts_ms: int) -> bool:
        holes = (one.hole for one in self.history.hole_rows.values())
        return any(hole.pack_id == source.pack_id and hole.start_ms <= ts_ms < hole.end_ms for hole in holes)

    def _held(self, partition: int) -> dict[tuple[int, int], int]:
        best: dict[tuple[int, int], int] = {(0, 0): -1}
        packs = {source.pack_id for source in self.sources if source.partition == partition}
        for pack_id in packs:
            for value in self.history.rows.get(pack_id, {}).values():
                for place, (order, _) in samples_of_chunk(value).items():
                    best[place] = max(order, best.get(place, -1))
        return best


def _one(watched: WatchedStore) -> KnownStores:
    stores = KnownStores()
    stores.watched.append(watched)
    return stores
