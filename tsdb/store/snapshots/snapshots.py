"""Snapshots of one store: opens the folder, loads heads at the start, and writes new snapshots afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tsdb.head.head import Head
from tsdb.head.head_image import image_of
from tsdb.log.interface import Log
from tsdb.log.start import Start
from tsdb.model.clock import Clock
from tsdb.model.meta import MetaSettings
from tsdb.ops.logs import get_logger
from tsdb.store.snapshots.counts import observe, restored_total
from tsdb.store.snapshots.folder import SnapshotFolder
from tsdb.store.snapshots.key import StoreKey
from tsdb.store.snapshots.loader import RestoredHead, SnapshotLoader
from tsdb.store.snapshots.writer import SnapshotWriter

INTERVAL_S = 600.0
DRAIN_S = 8.0  # A third of the default drain: the other components of a process need the rest.

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """folder: folder of the files. interval_s: time between two snapshots of a partition. drain_s: time for all writes
    of a drain. meta: settings that all processes share. experiment: the experiment of the store; empty for production.
    """

    folder: Path
    meta: MetaSettings
    interval_s: float = INTERVAL_S
    drain_s: float = DRAIN_S
    experiment: str = ""


class Snapshots:
    """Workers call `load`, `offer` and `offer_last`; the store calls the rest, `open` first."""

    def __init__(
        self, options: SnapshotOptions, key: StoreKey, log_: Log, clock: Clock, make_head: Callable[[int, Start], Head]
    ) -> None:
        self._clock = clock
        self._folder = SnapshotFolder(options.folder, options.experiment)
        self._loader = SnapshotLoader(self._folder, key, log_, clock, make_head)
        self.writer = SnapshotWriter(
            self._folder, key, log_, clock, interval_s=options.interval_s, drain_s=options.drain_s
        )

    def open(self) -> None:
        """Raises as SnapshotFolder.open."""
        self._folder.open()
        self.writer.start()

    def load(self, starts: Mapping[int, Start]) -> dict[int, RestoredHead]:
        """See SnapshotLoader.load for the contract."""
        began_at = self._clock.monotonic()
        found = self._loader.load(starts)
        for partition, restored in found.items():
            self._note(partition, restored)
        if found:
            seconds = round(self._clock.monotonic() - began_at, 3)
            log.info("snapshots restored", partitions=len(found), of=len(starts), seconds=seconds)
        return found

    def offer(self, partition: int, head: Head, series_next_offset: int, ready: Callable[[], bool]) -> None:
        """Hand over an image of the head, if one is due and the partition has caught up."""
        if self.writer.is_due(partition, (head.next_offset, series_next_offset)) and ready():
            self._hand_over(partition, head, series_next_offset)

    def offer_last(self, partition: int, head: Head, series_next_offset: int) -> None:
        """Hand over an image at a drain, if the head has changed since the last one."""
        if not self.writer.is_written(partition, (head.next_offset, series_next_offset)):
            self._hand_over(partition, head, series_next_offset)

    def join(self, timeout_s: float) -> bool:
        """Write the remaining snapshots after the workers have ended. False: not finished yet."""
        self.writer.close()
        ended = self.writer.join(timeout_s)
        if ended:
            self._folder.close()
        return ended

    def abort(self) -> None:
        self.writer.abort()
        self._folder.close()

    def _hand_over(self, partition: int, head: Head, series_next_offset: int) -> None:
        # The first records may still be missing: an empty head is made again at once.
        if head.applied_offset is not None:
            self.writer.put(partition, image_of(head), series_next_offset)

    def _note(self, partition: int, restored: RestoredHead) -> None:
        place, sizes = restored.place, restored.head.sizes()
        restored_total.inc()
        self.writer.restored(partition, place)
        observe(partition, place.written_ms, restored.file_bytes)
        log.info(
            "head restored from a snapshot; replay goes on",
            partition=partition,
            offset=place.next_offset,
            series_offset=place.series_next_offset,
            age_s=round((self._clock.now_ms() - place.written_ms) / 1000),
            samples=sizes.samples,
            series=sizes.series,
            bytes=restored.file_bytes,
        )
