"""The expected output of the chunk stage, by brute force over plain dicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from support.data.heads import Record, canonical_of, details_of, id_of
from tsdb.codec.chunk.chunk import PART_BYTES_MAX, Fragment, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind, WindowKey, encode_key
from tsdb.codec.chunk.marker import WindowMarker, encode_window_marker
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import TimeSet

Written = set[tuple[bytes, bytes]]
ByTime = dict[tuple[int, int], tuple[float, int, int]]
"""(series id, ts_ms) -> (value, order, number of its details)."""


def pack_of(number: int) -> int:
    """Pack id of a numbered series."""
    return PlacementRule().place(canonical_of(number)).pack_id


class ChunkTwin:
    """The whole log of one partition, never trimmed, and the output that follows from it."""

    def __init__(self, records: Sequence[Record], times: TimeSet, part_bytes_max: int = PART_BYTES_MAX) -> None:
        self._records = records
        self._times = times
        self._part_bytes_max = part_bytes_max
        self._first_ms = (records[0].broker_ms - times.grace_ms) // times.window_ms * times.window_ms

    def decision_offset(self, window_ms: int) -> int | None:
        """D of the window that starts at window_ms; None: it is open."""
        closes_ms = window_ms + self._times.window_ms + self._times.grace_ms
        return next((r.offset for r in self._records if r.broker_ms >= closes_ms), None)

    def closed_windows(self) -> list[int]:
        """Starts of the windows that close, from the first that the stage emits on."""
        found, window_ms = [], self._first_ms
        while self.decision_offset(window_ms) is not None:
            found.append(window_ms)
            window_ms += self._times.window_ms
        return found

    def written(self) -> Written:
        """Every record except progress markers."""
        base: defaultdict[tuple[int, int], ByTime] = defaultdict(dict)
        late: defaultdict[tuple[int, int, int], ByTime] = defaultdict(dict)
        minutes = self._minutes()
        for record in self._records:
            numbers = record.details or (0,) * len(record.samples)
            for (number, ts, value), details in zip(record.samples, numbers, strict=True):
                window = ts // self._times.window_ms * self._times.window_ms
                if ts > record.broker_ms + self._times.ahead_ms:
                    continue
                decision = self.decision_offset(window)
                at = (id_of(number), ts)
                if window < self._first_ms or (decision is not None and record.offset >= decision):
                    first_offset, ended = minutes[record.offset]
                    if ended:
                        late[pack_of(number), window, first_offset][at] = (value, record.offset, details)
                elif decision is not None:
                    base[pack_of(number), window][at] = (value, decision - 1, details)
        return self._base_records(base) | self._late_records(late)

    def _minutes(self) -> dict[int, tuple[int, bool]]:
        """Record offset -> (first offset of its late minute, whether a later record ended that)."""
        found: dict[int, tuple[int, bool]] = {}
        watermark = -(1 << 62)
        first_of: dict[int, int] = {}
        for record in self._records:
            watermark = max(watermark, record.broker_ms)
            minute = watermark // self._times.late_minute_ms
            found[record.offset] = (first_of.setdefault(minute, record.offset), True)
        last = max(first_of.values())
        return {offset: (first, first != last) for offset, (first, _) in found.items()}

    def _base_records(self, base: dict[tuple[int, int], ByTime]) -> Written:
        written: Written = set()
        for window_ms in self.closed_windows():
            decision = self.decision_offset(window_ms)
            assert decision is not None
            here = {pack: samples for (pack, window), samples in base.items() if window == window_ms}
            chunks: Written = set()
            for pack, samples in here.items():
                chunks |= self._parts(pack, window_ms, Kind.BASE, decision, samples)
            marker = WindowMarker(decision, len(here), len(chunks), sum(map(len, here.values())))
            written |= chunks | {(encode_key(WindowKey(window_ms)), encode_window_marker(marker))}
        return written

    def _late_records(self, late: dict[tuple[int, int, int], ByTime]) -> Written:
        written: Written = set()
        for (pack, window_ms, first_offset), samples in late.items():
            written |= self._parts(pack, window_ms, Kind.LATE, first_offset, samples)
        return written

    def _parts(self, pack: int, window_ms: int, kind: Kind, order: int, samples: ByTime) -> Written:
        parts = encode_chunk(
            fragment_of(pack, window_ms, samples), window_ms=self._times.window_ms, part_bytes_max=self._part_bytes_max
        )
        return {(encode_key(ChunkKey(pack, window_ms, kind, order, number)), part) for number, part in enumerate(parts)}


def fragment_of(pack: int, window_ms: int, samples: ByTime) -> Fragment:
    """A fragment made of plain samples."""
    places = sorted(samples)
    ids = sorted({series for series, _ in places})
    starts = np.searchsorted([series for series, _ in places], ids).tolist()
    value = np.array([samples[place][0] for place in places], np.float64)
    return Fragment(
        pack,
        window_ms,
        np.array(ids, np.uint64),
        np.array([*starts, len(places)], np.int64),
        np.array([ts for _, ts in places], np.int64),
        value,
        np.array([samples[place][1] for place in places], np.int64),
        details_of([samples[place][2] for place in places], value),
    )
