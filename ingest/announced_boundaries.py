"""Announced boundaries: a thread reads the `le` of all bucket series from the topic `series`, from the first need on.

The thread begins with the announcements of the last two windows, as a store does, and follows the topic from then on.
A gateway without native histograms reads nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from ingest.bucket_memory import histogram_of
from tsdb.codec.records.record_status import STATUS_OK
from tsdb.codec.records.series_record import decode_announcements
from tsdb.log.interface import SERIES, EndOfLog, Log, RecordBatch
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, TsdbError, Unavailable
from tsdb.ops.lifecycle import Component
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import gauge
from tsdb.ops.threads import new_thread

WINDOWS_BACK = 2
POLL_S = 1.0
AGAIN_S = 1.0  # Pause after an error of the log.
WAIT_S = 2.0  # A request waits this long for the first reading. A later request is refused with a retry time.
RETRY_AFTER_S = 1.0
HISTOGRAMS_MAX = 200_000
BOUNDARIES_MAX = 1_000  # Boundaries of one histogram.
TEXTS_MAX = 100_000
_SEPARATOR, _NAME, _LE, _BUCKET = b"\xff", b"__name__", b"le", b"_bucket"
_HAS_LE = b"\xffle\xff"
_INFINITE = b"+Inf"

_histograms = gauge(
    "tsdb_ingest_announced_histograms",
    "Histograms whose announced boundaries this gateway knows; 0 before its first native histogram.",
)

log = get_logger(__name__)


class SeriesBoundaries(Component):
    """AnnouncedBoundaries over a log. It is a Component. Beyond HISTOGRAMS_MAX the oldest are forgotten."""

    def __init__(self, log_: Log, partitions: int, window_ms: int, clock: Clock) -> None:
        self._log = log_
        self._partitions = partitions
        self._back_ms = WINDOWS_BACK * window_ms
        self._clock = clock
        self._lock = threading.Lock()  # Guards _thread and the start; an innermost lock.
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._loaded = threading.Event()
        # Only the thread writes it. A tuple is replaced by a longer one, so readers need no lock.
        self._boundaries: dict[int, tuple[bytes, ...]] = {}
        self._texts: dict[bytes, bytes] = {}

    @property
    def ready(self) -> bool:
        """Whether the announcements of the last windows are read."""
        return self._loaded.is_set()

    def of(self, histogram: int) -> Collection[bytes]:
        """Implements AnnouncedBoundaries.of. The first call starts the thread."""
        if not self._loaded.is_set():
            self._load()
        return self._boundaries.get(histogram, ())

    def close(self) -> None:
        """End the thread after its current step."""
        self._closing.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread, if there is one."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return thread is None or not thread.is_alive()

    def _load(self) -> None:
        with self._lock:
            first = self._thread is None
            if first:
                self._thread = new_thread(self._run, "announced-boundaries")
                self._thread.start()
        if self._loaded.wait(WAIT_S if first else 0.0):
            return
        raise Unavailable(
            "this gateway reads which boundaries its histograms have, for their stale markers: send again soon",
            reason="boundaries",
            retry_after_s=RETRY_AFTER_S,
        )

    def _run(self) -> None:
        while not self._closing.is_set():
            self._follow()

    def _follow(self) -> None:
        """Read the topic until it ends by an error of the log, then wait: the next call begins anew."""
        try:
            with self._log.reader(
                {(SERIES, partition): start for partition, start in self._starts().items()}
            ) as reader:
                left = set(range(self._partitions))
                while not self._closing.is_set():
                    for event in reader.poll(POLL_S):
                        if isinstance(event, EndOfLog):
                            left.discard(event.partition)
                        else:
                            self._take(event)
                    if not left:
                        self._loaded.set()
        except LostOffsets as error:
            log.warning("boundaries are read again", reason=error.reason, error=error.message)
        except TsdbError as error:
            log.warning("boundaries are not read", reason=error.reason, error=error.message)
            self._closing.wait(AGAIN_S)

    def _starts(self) -> dict[int, int]:
        partitions = range(self._partitions)
        marks = self._log.watermarks(SERIES, partitions)
        since_ms = self._clock.now_ms() - self._back_ms
        found = self._log.offsets_for_times(SERIES, dict.fromkeys(partitions, since_ms))
        starts = {
            partition: marks[partition].high if found[partition] is None else found[partition]
            for partition in partitions
        }
        return {partition: start for partition, start in starts.items() if start is not None}

    def _take(self, batch: RecordBatch) -> None:
        decoded = decode_announcements(batch.keys, batch.key_starts, batch.values, batch.value_starts)
        for status, start, end in zip(
            decoded.status.tolist(), decoded.label_start.tolist(), decoded.label_end.tolist(), strict=True
        ):
            labels = batch.values[start:end]
            if status == STATUS_OK and _HAS_LE in labels:
                self._add(labels)
        _histograms.set(len(self._boundaries))

    def _add(self, labels: bytes) -> None:
        parts = labels.split(_SEPARATOR)
        names = parts[::2]
        if _LE not in names or _NAME not in names:
            return
        at = 2 * names.index(_LE)
        bound = parts[at + 1]
        if bound == _INFINITE or not parts[2 * names.index(_NAME) + 1].endswith(_BUCKET):
            return
        key = histogram_of(_SEPARATOR.join(parts[:at] + parts[at + 2 :]))
        known = self._boundaries.get(key, ())
        if bound in known or len(known) >= BOUNDARIES_MAX:
            return
        if not known and len(self._boundaries) >= HISTOGRAMS_MAX:
            del self._boundaries[next(iter(self._boundaries))]
        if len(self._texts) >= TEXTS_MAX:
            self._texts.clear()
        self._boundaries[key] = (*known, self._texts.setdefault(bound, bound))
