"""Newest: finds each sample of a range of the log once, with the version that counts, which is that of the highest
order.

Two passes over the records, so that memory does not grow with their number. Nearly all samples of a series come in the
order of their times. The first pass finds the others: only they can be a second version. The second pass returns the
samples, and keeps back those with the time of such a sample until all versions are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spark_backfill.source.rows import SourceSamples, Versions
from tsdb.model.details import joined_details
from tsdb.model.errors import Overloaded


def newest(read: Callable[[], Iterable[SourceSamples]], keys_max: int) -> Iterator[SourceSamples]:
    """Samples without superseded versions. read: yields the same samples with versions, by ascending order, each time.

    Raises Overloaded (late_samples) when more than keys_max samples came out of their order.
    """
    late = _late(read(), keys_max)
    kept: list[SourceSamples] = []
    for samples in read():
        is_late = late.has(samples.series_id, samples.ts_ms)
        if not is_late.any():
            yield samples
            continue
        kept.append(samples.at(is_late))
        yield samples.at(~is_late)
    if kept:
        yield last_versions(joined(kept))


def last_versions(samples: SourceSamples) -> SourceSamples:
    """The last sample of each (series, time). samples: ascending by order."""
    rows = np.lexsort((samples.ts_ms, samples.series_id))  # The sort is stable: equal keys keep their order.
    series_id, ts_ms = samples.series_id[rows], samples.ts_ms[rows]
    last = np.ones(len(rows), np.bool_)
    last[:-1] = (series_id[1:] != series_id[:-1]) | (ts_ms[1:] != ts_ms[:-1])
    return samples.at(rows[last])


def joined(parts: list[SourceSamples]) -> SourceSamples:
    """One value of several of one partition, all with versions."""
    versions = [part.versions for part in parts if part.versions is not None]
    assert len(versions) == len(parts), "samples without a place in the log"
    return SourceSamples(
        np.concatenate([part.series_id for part in parts]),
        np.concatenate([part.pack_id for part in parts]),
        np.concatenate([part.ts_ms for part in parts]),
        np.concatenate([part.value for part in parts]),
        Versions(
            versions[0].partition,
            np.concatenate([each.order for each in versions]),
            np.concatenate([each.broker_ms for each in versions]),
        ),
        joined_details([(len(part), part.details) for part in parts]),
    )


class KeySet:
    """A set of keys: a series id and a time name one sample. Arrays of keys are uint64 (n,) and int64 (n,)."""

    def __init__(self, series_id: NDArray[np.uint64], ts_ms: NDArray[np.int64]) -> None:
        self._series = np.unique(series_id)
        self._times = np.unique(ts_ms)
        self._codes = np.unique(self._code(series_id, ts_ms)[0]) if len(series_id) else np.empty(0, np.int64)

    def has(self, series_id: NDArray[np.uint64], ts_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each key is in the set, bool (n,)."""
        if not len(self._codes):
            return np.zeros(len(series_id), np.bool_)
        codes, known = self._code(series_id, ts_ms)
        at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        found: NDArray[np.bool_] = known & (self._codes[at] == codes)
        return found

    def _code(
        self, series_id: NDArray[np.uint64], ts_ms: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """A number for each key, and whether both its halves are in the set: then the number is the key's alone."""
        series, of_series = _rows_in(self._series, series_id)
        time, of_times = _rows_in(self._times, ts_ms)
        return series * len(self._times) + time, of_series & of_times


def _rows_in(known: NDArray[Any], wanted: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    found: NDArray[np.bool_] = known[at] == wanted
    return at, found


def _late(parts: Iterable[SourceSamples], keys_max: int) -> KeySet:
    """Keys of the samples that are not later than all before them of their series."""
    known = np.empty(0, np.uint64)  # Series, ascending, with the latest time of each.
    latest = np.empty(0, np.int64)
    series_id: list[NDArray[np.uint64]] = []
    ts_ms: list[NDArray[np.int64]] = []
    count = 0
    for samples in parts:
        if not len(samples):
            continue
        new = np.setdiff1d(samples.series_id, known)
        if len(new):
            at = np.searchsorted(known, new)
            known, latest = np.insert(known, at, new), np.insert(latest, at, np.iinfo(np.int64).min)
        late = _late_rows(samples, known, latest)
        if len(late):
            series_id.append(samples.series_id[late])
            ts_ms.append(samples.ts_ms[late])
            count += len(late)
        if count > keys_max:
            raise Overloaded(
                f"over {keys_max} samples of one task did not come in the order of their times; limit is {keys_max}:"
                " raise the option splits, narrow the range, or read all versions with the option versions=all",
                reason="late_samples",
                limit=keys_max,
                asked=count,
            )
    if not series_id:
        return KeySet(np.empty(0, np.uint64), np.empty(0, np.int64))
    return KeySet(np.concatenate(series_id), np.concatenate(ts_ms))


def _late_rows(samples: SourceSamples, known: NDArray[np.uint64], latest: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows whose time is not above all earlier times of their series. Updates `latest`, int64 by row of `known`."""
    series = np.searchsorted(known, samples.series_id)
    rows = np.argsort(series, kind="stable")
    series, ts_ms = series[rows], samples.ts_ms[rows]
    # One running maximum for all series: a series' numbers lie above those of the series before it.
    times, rank = np.unique(ts_ms, return_inverse=True)
    number = series * len(times) + rank
    before = np.empty_like(number)
    first = np.ones(len(rows), np.bool_)
    first[1:] = series[1:] != series[:-1]
    before[1:] = np.maximum.accumulate(number)[:-1]
    late = (~first & (number <= before)) | (ts_ms <= latest[series])
    starts = np.flatnonzero(first)
    latest[series[starts]] = np.maximum(latest[series[starts]], np.maximum.reduceat(ts_ms, starts))
    return rows[late]
