"""Chunkers and loaders of a simulation: the real ones, without their threads, stepped by hand."""

from __future__ import annotations

from chunker.chunker import Chunker, ChunkerOptions
from chunker.partition import StageOptions
from support.simulation.groups import Member
from support.simulation.history import SimulatedHistory
from support.simulation.log import SimulatedLog
from support.simulation.times import SLICES, TIMES
from tsdb.head.limits import HeadLimits
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.log.interface import METRICS
from tsdb.model.clock import ManualClock


class SimulatedChunker:
    """One chunker process. `partitions`: what it holds now."""

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
        """One step of the consumer, and one look of the reporter."""
        self._core.step(0.0)
        self._loader._reporter.look()
        if self._core.failure is not None:
            raise self._core.failure

    def has_raised(self, partitions: int) -> bool:
        """Whether it wrote or read `loaded` of every partition, so that it notices when history is emptied."""
        return len(self._loader._raises._last) == partitions

    def kill(self) -> None:
        """The process is gone; statements on their way may still take effect."""
        self.group.die()
