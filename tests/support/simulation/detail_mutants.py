"""Mutants of details: the product without one rule of section 26, on histograms and start timestamps.

A mutant changes details alone. The value of a histogram stays its sum, so that only a comparison of details finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tsdb.answer.answer import RawResult
from tsdb.chunks.late_minute import LateSamples
from tsdb.chunks.window import base_fragments
from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.columns.details import decode_details
from tsdb.codec.records.log_record import encode_record
from tsdb.head.details import DetailBucket, DetailEntries, HeadDetails
from tsdb.head.slices.ring import Ring
from tsdb.history.merge import merge
from tsdb.model.details import SampleDetails
from tsdb.model.histograms import HistogramColumns, HistogramShape, joined_histograms
from tsdb.query.reduction import Reduction
from tsdb.store.snapshots.content import _DetailsArrays

Change = Callable[[SampleDetails], SampleDetails | None]
Patch = Callable[[pytest.MonkeyPatch], None]


def no_starts(details: SampleDetails) -> SampleDetails | None:
    """Details of histograms, without start timestamps."""
    return None if details.histograms is None else replace(details, start_ms=None)


def on_histograms(change: Callable[[HistogramColumns], HistogramColumns]) -> Change:
    """A change of the histograms alone."""

    def changed(details: SampleDetails) -> SampleDetails:
        columns = details.histograms
        return details if columns is None else replace(details, histograms=change(columns))

    return changed


no_hints = on_histograms(lambda columns: replace(columns, hints=np.zeros_like(columns.hints)))
all_integers = on_histograms(lambda columns: replace(columns, is_integer=np.ones_like(columns.is_integer)))


@on_histograms
def rolled(columns: HistogramColumns) -> HistogramColumns:
    """Each count is that of the bucket before."""
    return replace(columns, buckets=np.roll(columns.buckets, 1))


@on_histograms
def shapes_of_before(columns: HistogramColumns) -> HistogramColumns:
    """A sample has the shape of the sample before, where that has as many buckets."""
    before = np.roll(columns.shape_of, 1)
    widths = np.array([len(shape.indexes) for shape in columns.shapes], np.int64)
    fits = widths[before] == widths[columns.shape_of]
    return replace(columns, shape_of=np.where(fits, before, columns.shape_of).astype(np.int32))


def decoded_as(place: str, change: Change) -> Patch:
    """The details that a module decodes are changed."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        def decode(*args: Any, **more: Any) -> SampleDetails | None:
            found = decode_details(*args, **more)
            return found and change(found)

        monkeypatch.setattr(f"{place}.decode_details", decode)

    return patch


def sent_without_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(pack: Any, lengths: Any, ids: Any, ts_ms: Any, values: Any, details: SampleDetails | None) -> bytes:
        return encode_record(pack, lengths, ids, ts_ms, values, details and no_starts(details))

    monkeypatch.setattr("ingest.appends.records.encode_record", encode)


def bounds_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def joined(parts: Sequence[HistogramColumns]) -> HistogramColumns:
        first: dict[HistogramShape, HistogramShape] = {}
        alike = [tuple(first.setdefault(_of_any_bounds(shape), shape) for shape in part.shapes) for part in parts]
        return joined_histograms([replace(part, shapes=shapes) for part, shapes in zip(parts, alike, strict=True)])

    monkeypatch.setattr("tsdb.model.details.joined_histograms", joined)


def _of_any_bounds(shape: HistogramShape) -> HistogramShape:
    return replace(shape, bounds=tuple(map(float, range(len(shape.bounds)))))


def first_entry_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = DetailEntries.newest

    def oldest(entries: DetailEntries) -> DetailEntries:
        return newest(entries.take(np.arange(len(entries))[::-1]))

    monkeypatch.setattr(DetailEntries, "newest", oldest)


def plain_samples_have_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    add = HeadDetails._add

    def detailed_alone(details: HeadDetails, entries: DetailEntries) -> None:
        if entries.details is not None:
            add(details, entries)

    monkeypatch.setattr(HeadDetails, "_add", detailed_alone)


def packed_without_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DetailBucket.packed

    def packed(bucket: DetailBucket) -> DetailBucket:
        entries = bucket.whole()
        return whole(DetailBucket.of(replace(entries, details=entries.details and no_starts(entries.details))))

    monkeypatch.setattr(DetailBucket, "packed", packed)


def restored_without(change: Change) -> Patch:
    """A snapshot is written with changed details."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        of = _DetailsArrays.of.__func__  # type: ignore[attr-defined]  # A classmethod.

        def changed(cls: Any, entries: DetailEntries) -> Any:
            return of(cls, replace(entries, details=entries.details and change(entries.details)))

        monkeypatch.setattr(_DetailsArrays, "of", classmethod(changed))

    return patch


def merged_as(change: Change, *places: str) -> Patch:
    """Fragments that a module merges have changed details."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        def merged(fragments: Iterable[Fragment]) -> Fragment:
            found = merge(list(fragments))
            return replace(found, details=found.details and change(found.details))

        for place in places:
            monkeypatch.setattr(f"{place}.merge", merged)

    return patch


def newest_with_details_of_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Reduction.apply

    def first(reduction: Reduction, fragment: Fragment) -> Fragment:
        found = apply(reduction, fragment)
        if not reduction.last_n or fragment.details is None:
            return found
        return replace(found, details=fragment.details.part(0, found.samples))

    monkeypatch.setattr(Reduction, "apply", first)


def overlay_without_details(monkeypatch: pytest.MonkeyPatch) -> None:
    def overlaid(samples: RawResult, overlay: RawResult) -> None:
        return None

    monkeypatch.setattr("tsdb.answer.columns.overlaid_details", overlaid)


def late_without_details(place: str) -> Patch:
    """The late samples that a module finds have no details."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        def plain(*columns: Any) -> LateSamples:
            return LateSamples(*columns[:5])

        monkeypatch.setattr(f"{place}.LateSamples", plain)

    return patch


def base_as(change: Change) -> Patch:
    """The samples of windows that a chunk stage emits have changed details."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        def changed(*args: Any) -> Iterator[Fragment]:
            for found in base_fragments(*args):
                yield replace(found, details=found.details and change(found.details))

        monkeypatch.setattr("tsdb.chunks.window.base_fragments", changed)

    return patch


def ring_as(change: Change) -> Patch:
    """Batches for watchers have changed details."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        append: Callable[..., None] = Ring.append

        def changed(ring: Ring, *columns: Any) -> None:
            *plain, details = columns
            append(ring, *plain, details and change(details))

        monkeypatch.setattr(Ring, "append", changed)

    return patch


def restored_ring_without_details(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = Ring.restore
    monkeypatch.setattr(Ring, "restore", lambda ring, image: restore(ring, image._replace(details=None)))


CHUNK, RECORD = "tsdb.codec.chunk.chunk", "tsdb.codec.records.log_record"

DETAIL_RULES: Mapping[str, tuple[Patch, int]] = {
    "a log record has start timestamps": (sent_without_starts, 0),
    "a log record has the kind of counts": (decoded_as(RECORD, all_integers), 0),
    "a chunk has hints": (decoded_as(CHUNK, no_hints), 4),
    "a chunk has each count in the column of its bucket": (decoded_as(CHUNK, rolled), 3),
    "a chunk has the order of shapes": (decoded_as(CHUNK, shapes_of_before), 4),
    "custom bounds are a part of a shape": (bounds_ignored, 0),
    "base chunks have start timestamps": (base_as(no_starts), 0),
    "late chunks have details": (late_without_details("tsdb.chunks.stage"), 0),
    "a rebuild finds the details of late samples": (late_without_details("tsdb.chunks.late_scan"), 0),
    "of two details in memory the later ones count": (first_entry_counts, 0),
    "a plain sample outranks one with details": (plain_samples_have_no_entry, 2),
    "packed details have start timestamps": (packed_without_starts, 0),
    "a snapshot has start timestamps": (restored_without(no_starts), 1),
    "a snapshot has hints": (restored_without(no_hints), 1),
    "the seam keeps hints": (merged_as(no_hints, "tsdb.query.join.seam", "tsdb.query.history.stretch"), 0),
    "a fold keeps start timestamps": (merged_as(no_starts, "tsdb.history.fold"), 4),
    "the newest samples have their own details": (newest_with_details_of_oldest, 7),
    "columns have details beside them": (overlay_without_details, 0),
    "a watcher gets start timestamps": (ring_as(no_starts), 0),
    "a watcher gets hints": (ring_as(no_hints), 0),
    "a watcher gets details after a restart": (restored_ring_without_details, 15),
}
"""By rule: the mutant, and the seed that caught it first."""
