"""Processes of a simulation: stores, chunkers and loaders, the real ones without their threads, stepped by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from chunker.chunker import Chunker, ChunkerOptions
from chunker.partition import StageOptions
from support.simulation.groups import Member
from support.simulation.history import SimulatedHistory
from support.simulation.log import SimulatedLog
from support.simulation.oracle import Violation
from support.simulation.times import SLICES, TIMES
from tsdb.answer.answer import Answer, ExemplarsAnswer, LabelsAnswer, SeriesAnswer, WatchAnswer
from tsdb.answer.spec import ExemplarsSpec, LabelsSpec, SelectSpec, SeriesSpec, WatchSpec
from tsdb.answer.state import MemoryState
from tsdb.head.head import Head
from tsdb.head.head_image import image_of
from tsdb.head.state import HeadLimits
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.log.interface import METRICS
from tsdb.model.clock import ManualClock
from tsdb.model.errors import TsdbError
from tsdb.model.meta import MetaSettings
from tsdb.query.stores.interface import StoreReader
from tsdb.query.stores.local import LocalStore
from tsdb.reader.read_call import Caller, SelectLimits
from tsdb.replay.replay import Replay
from tsdb.store.applied import AppliedSignal
from tsdb.store.reads import StoreReads
from tsdb.store.service import ReaderService
from tsdb.store.snapshots.snapshots import SnapshotOptions
from tsdb.store.store import RECORDS_MAX, Store, StoreOptions
from tsdb.v1 import reader_pb2

NEVER_S = 1e9  # Readers accept any lag: each answer states its applied offset.
WAIT_S = 0.05  # A reader that waits for records looks again after this time.
# A watcher falls behind the ring now and then.
LIMITS = HeadLimits(fold_entries_min=1, ring_samples_max=40)


def meta_of(partitions: int) -> MetaSettings:
    """The settings that all processes share."""
    return MetaSettings(partitions, time_set=TIMES)


class SteppedSignal(AppliedSignal):
    """The signal of a store without threads: while a reader waits, `work` is what the store's worker does meanwhile."""

    def __init__(self, clock: ManualClock, work: Callable[[], None]) -> None:
        super().__init__(clock)
        self._work = work

    def wait(self, seen: int, timeout_s: float) -> None:
        if self.generation() == seen:
            self.clock.sleep(max(min(timeout_s, WAIT_S), 0.001))
            self._work()


class SimulatedStore:
    """One store process, from its start to its kill. folder: the folder of its snapshots, which outlive it."""

    def __init__(
        self, name: str, log: SimulatedLog, clock: ManualClock, hold_ms: int, folder: Path, limits: HeadLimits = LIMITS
    ) -> None:
        snapshots = SnapshotOptions(folder, meta_of(log.partitions("metrics")))
        options = StoreOptions(TIMES, SLICES, hold_ms, limits, 1, NEVER_S, NEVER_S, snapshots=snapshots)
        self.name = name
        self.hold_ms = hold_ms
        self.limits = limits
        self.folder = folder
        self.store = Store(log, range(log.partitions("metrics")), options, clock)
        self._replay: Replay[Head] = self.store._replay(self.store.partitions)
        self._applied = SteppedSignal(clock, lambda: self.step(RECORDS_MAX))
        reads = StoreReads(self.store.topic_id, self.store.partitions, self._applied, SelectLimits())
        self.service = ReaderService(reads)
        self.local = LocalStore(reads, clock)
        self.poll()

    def step(self, records_max: int) -> None:
        """Fetch and apply up to records_max records of each partition."""
        full = {
            number: (partition.head, partition.progress.samples)
            for number, partition in self.store.partitions.items()
            if partition.head.memory.bytes > self.limits.memory_hard_bytes
        }
        step = self._replay.step(0.0, records_max=records_max)
        for number, partition in self.store.partitions.items():
            waiting = self._replay.waiting_for(number)
            partition.observe_waiting(waiting.reason if waiting else "")
        if step.records:
            self._applied.notify()
        self.poll()
        for number, (head, samples) in full.items():
            partition = self.store.partitions[number]
            if partition.head is not head:
                continue
            # Ticks take no memory, and the tick of an import frees memory.
            if partition.progress.samples != samples:
                raise Violation(f"{self.name} takes samples with {head.memory.bytes} bytes of {self.limits}")
            if self._replay.waiting_for(number) is not None and partition.status().readiness.ready:
                raise Violation(f"{self.name} is ready in partition {number}, although it has no room")

    def poll(self) -> None:
        """Read the high watermarks of the log."""
        self.store._poller.poll()

    def maintain(self) -> None:
        """Seal, fold, merge, drop."""
        for partition in self.store.partitions.values():
            head = partition.head
            head.maintain()
            contents, over = head.contents, head.memory.over_soft
            if contents.sealed and over > sum(slice_.bytes for slice_ in contents.below):
                raise Violation(f"{self.name} keeps {len(contents.sealed)} slices, {over} bytes above {self.limits}")

    def take_snapshots(self) -> int:
        """Write the snapshots of all partitions; returns how many were written."""
        assert self.store.snapshots is not None
        self.folder.mkdir(exist_ok=True)
        written = 0
        for number, partition in self.store.partitions.items():
            if partition.head.applied_offset is None:
                continue
            try:
                image, series = image_of(partition.head), self._replay.series_next_offset(number)
                self.store.snapshots.writer.write(number, image, series)
            except TsdbError:
                continue  # The log has lost the record that the head ends with, or does not answer.
            written += 1
        return written

    @property
    def restored(self) -> int:
        """Partitions that began with a snapshot."""
        return len(self.store._series_next)

    @property
    def next_offsets(self) -> dict[int, int]:
        """The next offset of the replay in each partition."""
        return {number: partition.progress.next_offset for number, partition in self.store.partitions.items()}

    @property
    def stopped(self) -> str:
        """Why a partition will not go on, or empty."""
        return "; ".join(one.progress.stopped_message for one in self.store.partitions.values() if one.progress.stopped)

    def close(self) -> None:
        """The process is gone."""
        self._replay.close()


States = dict[int, MemoryState]


class WatchedStore:
    """StoreReader of a simulated store. before_read: called where a store's answer may come later than the question.

    stated: receives the state of each partition that a Select answers, for answers of queriers that have none.
    """

    def __init__(
        self, simulated: SimulatedStore, before_read: Callable[[str], None], stated: States | None = None
    ) -> None:
        self._local: StoreReader = simulated.local
        self._name = simulated.name
        self._before_read = before_read
        self._stated = {} if stated is None else stated

    @property
    def name(self) -> str:
        return self._name

    def states(self) -> Mapping[int, MemoryState]:
        return self._local.states()

    @property
    def apart(self) -> bool:
        return self._local.apart

    @property
    def may_be_silent(self) -> bool:
        return False

    @property
    def is_suspect(self) -> bool:
        return False

    def suspect(self) -> None:
        raise AssertionError("no simulated store is hedged")

    def refresh(self, timeout_s: float) -> None:
        self._local.refresh(timeout_s)

    def select(self, spec: SelectSpec, caller: Caller) -> Iterator[Answer]:
        self._before_read("select")
        for answer in self._local.select(spec, caller):
            self._stated.update((state.partition, state) for state in answer.states or ())
            yield answer

    def series(self, spec: SeriesSpec, caller: Caller) -> Iterator[SeriesAnswer]:
        self._before_read("select_series")
        return self._local.series(spec, caller)

    def labels(self, spec: LabelsSpec, caller: Caller) -> Iterator[LabelsAnswer]:
        self._before_read("select_labels")
        return self._local.labels(spec, caller)

    def exemplars(self, spec: ExemplarsSpec, caller: Caller) -> Iterator[ExemplarsAnswer]:
        return self._local.exemplars(spec, caller)

    def cardinality(
        self, request: reader_pb2.CardinalityRequest, caller: Caller
    ) -> Iterator[reader_pb2.CardinalityResponse]:
        return self._local.cardinality(request, caller)

    def watch(self, spec: WatchSpec, caller: Caller) -> Iterator[WatchAnswer]:
        return self._local.watch(spec, caller)


class KnownStores:
    """tsdb.query.stores.interface.Stores: those that live, in whatever order the driver keeps them."""

    in_process = None

    def __init__(self) -> None:
        self.watched: list[WatchedStore] = []

    def away(self) -> tuple[tuple[str, str], ...]:
        return ()

    def all(self) -> list[WatchedStore]:
        return self.watched

    def refresh(self, timeout_s: float) -> None:
        for store in self.watched:
            store.refresh(timeout_s)


class SimulatedChunker:
    """One chunker process. `partitions`: its assigned partitions now."""

    def __init__(self, log: SimulatedLog, clock: ManualClock, records_max: int, part_bytes_max: int) -> None:
        stage = StageOptions(
            TIMES, SLICES, HeadLimits(fold_entries_min=1), part_bytes_max=part_bytes_max, records_max=records_max
        )
        self._chunker = Chunker(log, ChunkerOptions(stage, 8 << 20, 5.0, 20.0), clock)
        self._member = self._chunker._member
        group = self._member._group
        assert isinstance(group, Member)
        self.group = group
        group.join([METRICS], self._member)

    def step(self) -> None:
        """One round of its thread."""
        self.work()
        self._member._poll(0.0)
        if self._member._error is not None:
            raise self._member._error

    def work(self) -> None:
        """A round without the poll: a member without news of the group goes on with its partitions."""
        for partition in list(self._member.partitions.values()):
            partition.step()

    def maintain(self) -> None:
        """Seal and merge what the stages hold."""
        self._member._maintain()

    @property
    def stopped(self) -> str:
        """Why a partition will not go on, or empty."""
        return "; ".join(one.stopped_message for one in self._member.partitions.values() if one.stopped)

    def close(self) -> None:
        """The process is gone."""
        self.group.die()
        self._chunker._series.close()


class SimulatedLoader:
    """A loader, as one process would run it."""

    def __init__(self, log: SimulatedLog, history: SimulatedHistory, clock: ManualClock, seed: int) -> None:
        options = LoaderOptions(TIMES, concurrency=16)
        self._loader = Loader(log, history, options, clock, seed=seed)
        self._core = self._loader._consumer._core
        source = self._loader._consumer._source
        source.start(self._core)
        group = source._group  # type: ignore[attr-defined]  # Of a LogSource.
        assert isinstance(group, Member)
        self.group = group

    def step(self) -> None:
        """Run one step of the consumer and one round of the reporter."""
        self._core.step(0.0)
        self._loader._reporter.look()
        if self._core.failure is not None:
            raise self._core.failure

    def has_raised(self, partitions: int) -> bool:
        """Whether it wrote or read `loaded` of every partition, so that it notices when history is emptied."""
        return len(self._loader._raises._last) == partitions

    def kill(self) -> None:
        """End the process. Statements in flight may still take effect."""
        self.group.die()
