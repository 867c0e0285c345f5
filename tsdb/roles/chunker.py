"""Builds a chunker from its settings."""

from __future__ import annotations

from chunker.chunker import Chunker, ChunkerOptions
from chunker.partition import StageOptions
from tsdb.config import ChunkerSettings, StandaloneSettings
from tsdb.head.state import HeadLimits
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import slice_lengths
from tsdb.roles.log import LogComponent, connected
from tsdb.roles.process import Opened, first_reason
from tsdb.store.readiness import ENTER_S, LEAVE_S


def open_chunker(settings: ChunkerSettings) -> Opened:
    """A chunker process. Raises Unavailable while the log does not answer, ConfigMismatch when settings differ from
    `meta`."""
    with connected(settings) as log:
        chunker = make_chunker(settings, log)
        stalled = first_reason(log.stalled, chunker.stalled)
        return Opened([LogComponent(log), chunker], chunker.health, stalled)


def make_chunker(settings: ChunkerSettings | StandaloneSettings, log: Log) -> Chunker:
    """The chunk stage over a log that the caller closes."""
    # A single member of the group gets every partition.
    memory_bytes = settings.chunk_memory_bytes // log.partitions(METRICS)
    stage = StageOptions(settings.times, slice_lengths(settings.times.name), HeadLimits(memory_hard_bytes=memory_bytes))
    options = ChunkerOptions(stage, settings.chunk_inflight_bytes_max, lag_enter_s=ENTER_S, lag_leave_s=LEAVE_S)
    return Chunker(log, options, SystemClock())
