"""Series cache: label bytes as sent -> ids, partition and announcement state, for a bounded number of series.

A hit costs one dictionary look-up; the other fields are gathered from arrays by slot. A miss normalises, hashes and
places the labels. A full cache evicts the least recently used sixteenth. Thread-safe: one lock, never held while labels
are parsed or the log is called. A request works on copies, so slots may be reused meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat

import numpy as np
import structlog
from numpy.typing import NDArray

from ingest.limits import IngestLimits
from ingest.refusals import shown_series
from ingest.series.resolved_rows import EPOCH, KNOWN_UNTIL, NO_SLOT, RENEW_AT, ResolvedRows, empty_rows, put
from ingest.series.source_hash import source_hash
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import format_series, normalize_labels
from tsdb.model.labels import series_id as hash_labels
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.ops.metrics import counter, gauge

FIRST_SLOTS = 1024
EVICTED_SHARE = 16  # One pass over the slots frees a sixteenth, which spreads its cost over many insertions.
# Other orders of the same labels kept for one series. A sender with more orders pays for the sorting each time.
ALIASES_MAX = 4
BLOCK = 1024  # Series inserted under one hold of the lock, at most.

_misses = counter("tsdb_ingest_series_cache_misses_total", "Look-ups of label sets that were not in the series cache.")
_evictions = counter("tsdb_ingest_series_cache_evictions_total", "Series evicted because the cache was full.")
_cached = gauge("tsdb_ingest_series_cached", "Series in the series cache.")

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Candidate:
    raw: bytes
    canonical: bytes
    series_id: int
    pack_id: int
    partition: int
    source: int


class SeriesCache:
    """At most limits.series_cache_max series, with series_cache_bytes_max bytes of labels plus those of one BLOCK."""

    def __init__(
        self,
        rule: PlacementRule,
        partitions: int,
        limits: IngestLimits,
        *,
        series_id: Callable[[bytes], int] = hash_labels,
    ) -> None:
        self._rule = rule
        # (partition, source hash) of a placement.
        self._place_of = lru_cache(maxsize=4096)(lambda text: (partition_of(text, partitions), source_hash(text)))
        self._limits = limits
        self._hash = series_id
        self._lock = threading.Lock()  # Guards all below.
        self._slot_of: dict[bytes, int] = {}  # By canonical labels, and by the other orders that senders use.
        self._slot_of_id: dict[int, int] = {}
        self._aliases: dict[int, list[bytes]] = {}
        self._canonical: list[bytes | None] = []
        self._free: list[int] = []
        self._label_bytes = 0
        self._tick = 0
        self._used = np.zeros(0, np.int64)
        self._series_id = np.zeros(0, np.uint64)
        self._pack_id = np.zeros(0, np.uint64)
        self._partition = np.zeros(0, np.int64)
        self._source = np.zeros(0, np.uint32)
        self._known = np.zeros((0, 2, 3), np.int64)

    def resolve(self, labels: Sequence[bytes]) -> ResolvedRows:
        """Rows for labels as sent, in any order of names. Unknown series are added, or refused in `errors`.

        Reasons: those of normalize_labels, and id_conflict when a cached series with other labels has the same id.
        """
        count = len(labels)
        with self._lock:
            slots = np.fromiter(map(self._slot_of.get, labels, repeat(NO_SLOT)), np.int64, count)
            if count and slots.min() > NO_SLOT:
                return self._gather_locked(slots)
            rows = empty_rows(count)
            hits = np.flatnonzero(slots > NO_SLOT)
            put(rows, hits, self._gather_locked(slots[hits]))
        misses = np.flatnonzero(slots == NO_SLOT)
        _misses.inc(len(misses))
        block = min(BLOCK, self._limits.series_cache_max)
        for start in range(0, len(misses), block):
            self._resolve_block(labels, misses[start : start + block], rows)
        return rows

    def canonical(self, raw: bytes) -> bytes:
        """Canonical form of labels that `resolve` accepted."""
        with self._lock:
            slot = self._slot_of.get(raw)
            held = None if slot is None else self._canonical[slot]
        return normalize_labels(raw, self._limits.labels) if held is None else held

    def set_known(
        self,
        rows: ResolvedRows,
        which: NDArray[np.int64],
        epochs: NDArray[np.int64],
        known_until_ms: int,
        renew_at_ms: NDArray[np.int64],
    ) -> None:
        """Record that series rows `which` are announced for `epochs` (int64, one each). Evicted series are skipped.

        The late answer of an older announcement never shortens a newer one of the same epoch.
        """
        with self._lock:
            kept = self._series_id[rows.slot[which]] == rows.series_id[which]
            which, epochs, renew_at_ms = which[kept], epochs[kept], renew_at_ms[kept]
            state = self._known[rows.slot[which], epochs & 1]
            older = (state[:, EPOCH] == epochs) & (state[:, KNOWN_UNTIL] > known_until_ms)
            fresh = np.stack([epochs, np.full_like(epochs, known_until_ms), renew_at_ms], axis=1)
            self._known[rows.slot[which], epochs & 1] = np.where(older[:, None], state, fresh)

    def postpone_renewal(
        self, rows: ResolvedRows, which: NDArray[np.int64], epochs: NDArray[np.int64], renew_at_ms: int
    ) -> None:
        """Record that series rows `which` are being announced again: no other request does so before renew_at_ms."""
        with self._lock:
            slots = rows.slot[which]
            kept = (self._series_id[slots] == rows.series_id[which]) & (self._known[slots, epochs & 1, EPOCH] == epochs)
            self._known[slots[kept], epochs[kept] & 1, RENEW_AT] = renew_at_ms

    def forget_refused(self, rows: ResolvedRows, which: NDArray[np.int64]) -> None:
        """Remove refused series rows `which` that were never announced: they would evict series in use."""
        which = which[rows.slot[which] > NO_SLOT]
        with self._lock:
            slots = np.unique(rows.slot[which][self._series_id[rows.slot[which]] == rows.series_id[which]])
            slots = slots[(self._known[slots][:, :, KNOWN_UNTIL] == 0).all(axis=1)]
            for slot in slots.tolist():
                self._forget_locked(slot)
            self._series_id[slots] = 0
            _cached.set(len(self._slot_of_id))

    def __len__(self) -> int:
        with self._lock:
            return len(self._slot_of_id)

    def _resolve_block(self, labels: Sequence[bytes], misses: NDArray[np.int64], rows: ResolvedRows) -> None:
        """Parse without the lock, insert and gather under it."""
        found: list[tuple[int, _Candidate]] = []
        for row in misses.tolist():
            try:
                found.append((row, self._candidate(labels[row])))
            except InvalidRequest as error:
                rows.errors[row] = error
        with self._lock:
            self._make_room_locked(len(found))
            placed: list[tuple[int, int]] = []
            for row, candidate in found:
                try:
                    placed.append((row, self._insert_locked(candidate)))
                except InvalidRequest as error:
                    rows.errors[row] = error
            _cached.set(len(self._slot_of_id))
            if placed:
                pairs = np.array(placed, np.int64)
                put(rows, pairs[:, 0], self._gather_locked(pairs[:, 1]))

    def _candidate(self, raw: bytes) -> _Candidate:
        canonical = normalize_labels(raw, self._limits.labels)
        if canonical == raw:
            canonical = raw  # One object for both.
        place = self._rule.place(canonical)
        return _Candidate(raw, canonical, self._hash(canonical), place.pack_id, *self._place_of(place.placement))

    def _insert_locked(self, candidate: _Candidate) -> int:
        slot = self._slot_of_id.get(candidate.series_id)
        if slot is None:
            slot = self._take_slot_locked(candidate)
        elif self._canonical[slot] != candidate.canonical:
            raise self._conflict_locked(candidate, slot)
        if candidate.raw not in self._slot_of:
            aliases = self._aliases.setdefault(slot, [])
            if len(aliases) < ALIASES_MAX:
                aliases.append(candidate.raw)
                self._slot_of[candidate.raw] = slot
                self._label_bytes += len(candidate.raw)
        return slot

    def _take_slot_locked(self, candidate: _Candidate) -> int:
        slot = self._free.pop()
        self._slot_of[candidate.canonical] = slot
        self._slot_of_id[candidate.series_id] = slot
        self._canonical[slot] = candidate.canonical
        self._label_bytes += len(candidate.canonical)
        self._series_id[slot] = candidate.series_id
        self._pack_id[slot] = candidate.pack_id
        self._partition[slot] = candidate.partition
        self._source[slot] = candidate.source
        self._known[slot] = 0
        return slot

    def _conflict_locked(self, candidate: _Candidate, slot: int) -> InvalidRequest:
        held = self._canonical[slot]
        assert held is not None
        logger.warning(
            "series id conflict",
            series_id=f"{candidate.series_id:016x}",
            refused=format_series(candidate.canonical),
            held=format_series(held),
        )
        return InvalidRequest(
            f"series_id {candidate.series_id:016x} is that of {shown_series(held)}; "
            f"series {shown_series(candidate.canonical)}",
            reason="id_conflict",
        )

    def _gather_locked(self, slots: NDArray[np.int64]) -> ResolvedRows:
        self._tick += 1
        self._used[slots] = self._tick
        return ResolvedRows(
            slots,
            self._series_id[slots],
            self._pack_id[slots],
            self._partition[slots],
            self._source[slots],
            self._known[slots],
            {},
        )

    def _make_room_locked(self, wanted: int) -> None:
        """Provide `wanted` free slots: grow up to the limit, then evict."""
        slots_max = self._limits.series_cache_max
        if len(self._free) < wanted and len(self._used) < slots_max:
            needed = len(self._slot_of_id) + wanted
            self._grow_locked(min(max(needed, 2 * len(self._used), FIRST_SLOTS), slots_max))
        if len(self._free) < wanted:
            self._evict_locked(max(wanted - len(self._free), slots_max // EVICTED_SHARE))
        while self._label_bytes > self._limits.series_cache_bytes_max:
            self._evict_locked(max(1, len(self._slot_of_id) // EVICTED_SHARE))

    def _grow_locked(self, size: int) -> None:
        added = range(len(self._used), size)
        self._free.extend(reversed(added))
        self._canonical.extend(repeat(None, len(added)))
        for name in ("_used", "_series_id", "_pack_id", "_partition", "_source", "_known"):
            old = getattr(self, name)
            grown = np.zeros((size, *old.shape[1:]), old.dtype)
            grown[: len(old)] = old
            setattr(self, name, grown)

    def _evict_locked(self, wanted: int) -> None:
        taken = np.fromiter(self._slot_of_id.values(), np.int64, len(self._slot_of_id))
        wanted = min(wanted, len(taken))
        oldest = taken[np.argpartition(self._used[taken], wanted - 1)[:wanted]]
        for slot in oldest.tolist():
            self._forget_locked(slot)
        self._series_id[oldest] = 0
        _evictions.inc(wanted)
        _cached.set(len(self._slot_of_id))

    def _forget_locked(self, slot: int) -> None:
        canonical = self._canonical[slot]
        assert canonical is not None, f"slot {slot} is free"
        for raw in (canonical, *self._aliases.pop(slot, ())):
            del self._slot_of[raw]
            self._label_bytes -= len(raw)
        del self._slot_of_id[int(self._series_id[slot])]
        self._canonical[slot] = None
        self._free.append(slot)
