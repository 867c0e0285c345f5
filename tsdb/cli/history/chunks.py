"""Reads chunks of selected series from history, for `tsdb history`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from tsdb.cli.options.arguments import TimeRange
from tsdb.cli.options.setting_options import ToolSettings
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.codec.chunk.key import Kind
from tsdb.history.interface import ChunkRow, ChunkStore, WindowRange
from tsdb.history.open import open_history, open_history_admin
from tsdb.history.shared_settings import HINT
from tsdb.model.errors import ConfigMismatch, CorruptData, UnknownVersion
from tsdb.model.times import time_text
from tsdb.model.window import EPOCH_MS
from tsdb.query.history.index import Choice, HistoryIndex
from tsdb.selector.selectors import parse_selector


@dataclass(slots=True)
class WindowTotals:
    """Totals of one window in history."""

    packs: set[int] = field(default_factory=set)
    rows: Counter[Kind] = field(default_factory=Counter)
    bytes: int = 0

    def add(self, row: ChunkRow) -> None:
        self.packs.add(row.key.pack_id)
        self.rows[row.key.kind] += 1
        self.bytes += len(row.value)

    def as_dict(self) -> dict[str, int]:
        """Number of packs, of rows by kind, and of bytes."""
        by_kind = {kind.name.lower(): self.rows[kind] for kind in Kind}
        return {"packs": len(self.packs), **by_kind, "bytes": self.bytes}


def history_chunks(settings: ToolSettings, matching: str | None, span: TimeRange | None) -> Iterator[ChunkRow]:
    """Rows of the packs of matching series (None: all), in windows that overlap span (None: all).

    Raises ConfigMismatch (history_schema) when history was not created.
    """
    url, access = settings.required_history(), settings.history_settings()
    with ExitStack() as stack:
        shared = stack.enter_context(open_history_admin(url, access)).shared()
        if not shared:
            raise ConfigMismatch(f"no shared settings are there: {HINT}", reason="history_schema")
        store = stack.enter_context(open_history(url, access))
        span = _within_epochs(store, span)
        packs = _packs(store, matching, span, int(shared["partitions"]))
        windows = WindowRange.touching(span.start_ms, span.end_ms, int(shared["time_set.window_ms"]))
        for piece in store.read(packs, windows):
            yield from piece


def described(row: ChunkRow) -> dict[str, object]:
    """A row with a summary of its chunk, or with `error` when the chunk cannot be decoded."""
    key = row.key
    shown: dict[str, object] = {
        "pack": f"{key.pack_id:016x}",
        "window": time_text(key.window_start_ms),
        "kind": key.kind.name.lower(),
        "order": key.order,
        "part": key.part,
        "bytes": len(row.value),
    }
    try:
        chunk = decode_chunk(row.value)
    except (CorruptData, UnknownVersion) as error:
        return shown | {"series": 0, "samples": 0, "first": None, "last": None, "error": error.message}
    first, last = int(chunk.ts_ms.min()), int(chunk.ts_ms.max())
    return shown | {
        "series": chunk.series,
        "samples": chunk.samples,
        "first": time_text(first),
        "last": time_text(last),
        "error": None,
    }


def _within_epochs(store: ChunkStore, span: TimeRange | None) -> TimeRange:
    """The part of span that may contain series. Reads of history cost one request a month, even for empty months."""
    epochs = store.epochs()
    if not epochs:
        return TimeRange(0, 0)
    # The phase of a series moves its epochs back by less than one epoch.
    start_ms, end_ms = (epochs[0] - 1) * EPOCH_MS, (epochs[-1] + 1) * EPOCH_MS
    if span is None:
        return TimeRange(start_ms, end_ms)
    return TimeRange(max(span.start_ms, start_ms), min(span.end_ms, end_ms))


def _packs(store: ChunkStore, matching: str | None, span: TimeRange, partitions: int) -> list[int]:
    if span.start_ms >= span.end_ms:
        return []
    choice = Choice(parse_selector(matching)) if matching else Choice((), derived=True)
    wanted = dict.fromkeys(range(partitions), 0)
    found = HistoryIndex(store).find(choice, span.start_ms, span.end_ms, {}, wanted)
    return sorted({pack_id for series in found.values() for pack_id in series.pack_ids})
