"""WriteBatch: samples to write, as columns, split into requests of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsdb.client.arguments import arguments_of, labels_of
from tsdb.client.histogram import Histogram
from tsdb.model.details import SampleDetails, joined_details, value_columns
from tsdb.model.errors import InvalidRequest
from tsdb.model.histograms import count_errors
from tsdb.v1 import ingest_pb2
from tsdb.wire.fields import F64, I64, U32
from tsdb.wire.histograms import encode_histograms, shape_parts

SAMPLE_BYTES = 16
HISTOGRAM_BYTES = 32  # Bytes of a histogram beside its buckets.
SHAPE_PART_BYTES = 32  # More than a part takes, so that requests of 4 MiB have fewer than SHAPE_PARTS_MAX.
EXEMPLAR_BYTES = 24  # Bytes of an exemplar beside its labels.
COUNT_MAX = np.iinfo(np.uint32).max
SERIES_BYTES = 8  # Bytes of one series beside its labels: a count, and the length prefix of the labels.


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds of one request, well inside the gateway's defaults (100,000 series, 1,000,000 samples, 16 MiB).

    Smaller requests wait for an acknowledgement more often; larger ones hold more memory on both sides.
    """

    series_max: int = 50_000
    samples_max: int = 200_000
    bytes_max: int = 4 << 20

    def __post_init__(self) -> None:
        if min(self.series_max, self.samples_max, self.bytes_max) <= 0:
            raise InvalidRequest(f"limits of a request must be above 0: {self}", reason="bad_limits")


@dataclass(frozen=True, slots=True)
class Exemplar:
    """An example of the events behind a sample, mostly by its trace: `Exemplar({"trace_id": "4bf92f..."}, 0.27, ms)`.

    labels: at most 128 characters of names and values, else the gateway drops the exemplar and does not count it in
    WriteResult. ts_ms: ms since epoch UTC. Stores keep the last ones of each series in memory; an exemplar that is
    older than one before it is dropped there.
    """

    labels: Mapping[str, str] | bytes
    value: float
    ts_ms: int


@dataclass(frozen=True, slots=True)
class RequestPart:
    """One request of a batch. series_indexes: int64, index in the batch of each series of the request."""

    request: ingest_pb2.WriteRequest
    series_indexes: NDArray[np.int64]


class WriteBatch:
    """Collects samples by series. Their order matters: of two samples of one (series, time) the later one wins.

    Not thread-safe. A written batch may be written again.

    """

    def __init__(self) -> None:
        self._labels: list[bytes] = []
        self._counts: list[NDArray[np.uint32]] = []
        self._ts_ms: list[NDArray[np.int64]] = []
        self._values: list[NDArray[np.float64]] = []
        self._details: list[tuple[int, SampleDetails | None]] = []
        self._samples = 0
        self._exemplars: list[tuple[int, int, float, bytes]] = []  # Entry, time, value, canonical labels.

    @property
    def series(self) -> int:
        """Number of entries. A series that was added twice counts twice."""
        return len(self._labels)

    @property
    def samples(self) -> int:
        """Number of samples of all entries."""
        return self._samples

    @arguments_of("samples")
    def add(
        self,
        labels: Mapping[str, str] | bytes,
        ts_ms: ArrayLike,
        values: ArrayLike | Histogram | Sequence[Histogram | float],
        exemplars: Iterable[Exemplar] = (),
        *,
        start_ms: ArrayLike | None = None,
    ) -> None:
        """Add samples of one series: a time and a value, or arrays of equal length. exemplars: examples of this series.

        A value is a number or a Histogram. start_ms: the start timestamp of each sample, or one for all: when its
        counter began. labels: values by name, `__name__` included, or canonical bytes. Times are integers, ms since
        epoch UTC, or datetimes of Python, numpy and pandas, UTC without a zone. Raises InvalidRequest.
        """
        canonical = labels_of(labels)
        times = _times(ts_ms)
        details: SampleDetails | None = None
        given: Any = [values] if isinstance(values, Histogram) else values
        if isinstance(given, list | tuple) and any(isinstance(value, Histogram) for value in given):
            _values([value for value in given if not isinstance(value, Histogram)])  # Refuses what is not a number.
            given, details = value_columns([one.columns() if isinstance(one, Histogram) else one for one in given])
        if start_ms is not None:
            starts = np.broadcast_to(_times(start_ms), len(times)).copy()
            details = SampleDetails(starts) if details is None else replace(details, start_ms=starts)
        listed = [(0, exemplar) for exemplar in exemplars]
        self.add_columns([canonical], [len(times)], times, given, listed, details=details)

    @arguments_of("samples")
    def add_columns(
        self,
        labels: Sequence[bytes],
        counts: ArrayLike,
        ts_ms: ArrayLike,
        values: ArrayLike,
        exemplars: Iterable[tuple[int, Exemplar]] = (),
        *,
        details: SampleDetails | None = None,
    ) -> None:
        """Add many series: canonical labels, number of samples of each, and the samples, series after series.
        exemplars: each with the index of its series in `labels`, which has a sample here. details: start timestamps and
        histograms of the samples; the value of a histogram is its sum.

        Arrays of the right type are kept without a copy: do not change them until the batch is written. Raises
        InvalidRequest.
        """
        lengths, times, floats = _counts(counts), _times(ts_ms), _values(values)
        total = int(lengths.sum(dtype=np.int64))
        if len(lengths) != len(labels) or not total == len(times) == len(floats):
            raise InvalidRequest(
                f"{len(labels)} label sets, {len(lengths)} counts of {total} samples, {len(times)} times, "
                f"{len(floats)} values: they must agree",
                reason="batch_malformed",
            )
        if details is not None:
            _check_details(details, floats)
        first = len(self._labels)
        self._exemplars += [_exemplar(first, index, exemplar, lengths) for index, exemplar in exemplars]
        self._labels.extend(labels)
        self._counts.append(lengths)
        self._ts_ms.append(times)
        self._values.append(floats)
        self._details.append((total, details))
        self._samples += total

    def parts(self, limits: RequestLimits, *, partial: bool = False) -> Iterator[RequestPart]:
        """Requests of at most `limits`, in order. A series that is too large for one request continues in the next one.

        A series whose labels alone are above the limit is sent unchanged: the refusal of the gateway names the series.

        """
        if not self._samples:
            return
        counts, ts_ms = np.concatenate(self._counts), np.concatenate(self._ts_ms)
        values = np.concatenate(self._values)
        details = joined_details(self._details)
        sample_ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(_sample_bytes(details, len(values)))))
        largest = int(np.diff(sample_ends).max())
        series, pieces = _pieces(counts, max(1, min(limits.samples_max, limits.bytes_max // largest)))
        label_bytes = np.fromiter(map(len, self._labels), np.int64, len(self._labels))
        begins = np.diff(series, prepend=-1) != 0  # The first piece of each entry has its exemplars.
        extra = np.zeros(len(self._labels), np.int64)
        for index, _, _, own in self._exemplars:
            extra[index] += EXEMPLAR_BYTES + len(own)
        ends = np.cumsum(pieces)
        of_samples = sample_ends[ends] - sample_ends[ends - pieces]
        costs = np.cumsum(label_bytes[series] + SERIES_BYTES + of_samples + begins * extra[series])
        first_pieces = dict(zip(series[begins].tolist(), np.flatnonzero(begins).tolist(), strict=True))
        exemplars = sorted(self._exemplars, key=lambda one: one[0])
        sent = 0
        first = 0
        while first < len(pieces):
            last = _last(first, costs, ends, limits)
            span = slice(int(ends[first] - pieces[first]), int(ends[last - 1]))
            request = ingest_pb2.WriteRequest(
                labels=[self._labels[index] for index in series[first:last].tolist()],
                sample_counts=pieces[first:last].astype(U32).tobytes(),
                ts_ms=ts_ms[span].tobytes(),
                values=values[span].tobytes(),
                partial=partial,
            )
            if details is not None:
                _put_details(request, details.part(span.start, span.stop))
            begun = sent
            while sent < len(exemplars) and first_pieces[exemplars[sent][0]] < last:
                sent += 1
            if begun < sent:
                rows = [first_pieces[index] - first for index, *_ in exemplars[begun:sent]]
                _put_exemplars(request, rows, exemplars[begun:sent])
            yield RequestPart(request, series[first:last])
            first = last


def _exemplar(first: int, index: int, exemplar: Exemplar, lengths: NDArray[np.uint32]) -> tuple[int, int, float, bytes]:
    """Entry of the batch, time, value, canonical labels. first: the entry of index 0. Raises InvalidRequest."""
    if not 0 <= index < len(lengths) or not lengths[index]:
        raise InvalidRequest(f"an exemplar of series {index}, which has no sample here", reason="batch_malformed")
    labels = labels_of(exemplar.labels)
    (ts_ms,), (value,) = _times(exemplar.ts_ms).tolist(), _values(exemplar.value).tolist()
    return first + index, ts_ms, value, labels


def _put_exemplars(
    request: ingest_pb2.WriteRequest, rows: Sequence[int], exemplars: Sequence[tuple[int, int, float, bytes]]
) -> None:
    """rows: index in the request of the series of each."""
    request.exemplar_series = np.array(rows, U32).tobytes()
    request.exemplar_ts_ms = np.array([ts_ms for _, ts_ms, _, _ in exemplars], I64).tobytes()
    request.exemplar_values = np.array([value for _, _, value, _ in exemplars], F64).tobytes()
    request.exemplar_label_lengths = np.array([len(labels) for *_, labels in exemplars], U32).tobytes()
    request.exemplar_labels = b"".join(labels for *_, labels in exemplars)


def _check_details(details: SampleDetails, values: NDArray[np.float64]) -> None:
    """Raises InvalidRequest: batch_malformed, or the reason of a histogram that the gateway would refuse."""
    lengths = [len(column) for column in (details.start_ms, details.histogram_of) if column is not None]
    if any(length != len(values) for length in lengths):
        raise InvalidRequest(f"details of {lengths} samples for {len(values)} values", reason="batch_malformed")
    if details.histograms is None or details.histogram_of is None:
        return
    where = details.histogram_of >= 0
    sums = details.histograms.sums[details.histogram_of[where]]
    if (sums.view(np.int64) != np.ascontiguousarray(values[where]).view(np.int64)).any():
        raise InvalidRequest("the value of a histogram must be its sum", reason="batch_malformed")
    for error in count_errors(details.histograms).values():
        raise error


def _sample_bytes(details: SampleDetails | None, samples: int) -> NDArray[np.int64]:
    """Bytes that each sample takes in a request, or more."""
    found = np.full(samples, SAMPLE_BYTES, np.int64)
    if details is None:
        return found
    if details.start_ms is not None:
        found += 8
    if details.histograms is not None and details.histogram_of is not None:
        columns = details.histograms
        of_shape = np.array([SHAPE_PART_BYTES * shape_parts(shape) for shape in columns.shapes], np.int64)
        sizes = HISTOGRAM_BYTES + 8 * np.diff(columns.starts) + of_shape[columns.shape_of]
        where = details.histogram_of >= 0
        found[where] += sizes[details.histogram_of[where]]
    return found


def _put_details(request: ingest_pb2.WriteRequest, details: SampleDetails | None) -> None:
    if details is None:
        return
    if details.start_ms is not None:
        request.start_ms = details.start_ms.astype(I64, copy=False).tobytes()
    if details.histograms is not None and details.histogram_of is not None:
        request.histograms.CopyFrom(encode_histograms(details.histograms, details.histogram_of))


def _pieces(counts: NDArray[np.uint32], samples_max: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(series index, samples) of each piece. A series with more than samples_max is cut; empty series are left out."""
    filled = np.flatnonzero(counts)
    lengths = counts[filled].astype(np.int64)
    cuts = -(-lengths // samples_max)
    pieces = np.full(int(cuts.sum()), samples_max, np.int64)
    pieces[np.cumsum(cuts) - 1] = lengths - (cuts - 1) * samples_max
    return np.repeat(filled, cuts), pieces


def _last(first: int, costs: NDArray[np.int64], ends: NDArray[np.int64], limits: RequestLimits) -> int:
    """End (exclusive) of the pieces in the request that begins with piece `first`. A request has at least one piece."""
    spent, sent = (int(costs[first - 1]), int(ends[first - 1])) if first else (0, 0)
    by_bytes = int(np.searchsorted(costs, spent + limits.bytes_max, side="right"))
    by_samples = int(np.searchsorted(ends, sent + limits.samples_max, side="right"))
    return max(first + 1, min(by_bytes, by_samples, first + limits.series_max))


def _counts(counts: ArrayLike) -> NDArray[np.uint32]:
    lengths = np.atleast_1d(np.asarray(counts))
    if lengths.size and (lengths.dtype.kind not in "iu" or int(lengths.min()) < 0 or int(lengths.max()) > COUNT_MAX):
        raise InvalidRequest(f"counts must be integers of 0 to {COUNT_MAX}", reason="batch_malformed")
    return lengths.astype(U32)


def _values(values: ArrayLike) -> NDArray[np.float64]:
    """The values as float64. numpy would turn None into NaN and a boolean into a number without an error, so both are
    refused."""
    given = np.atleast_1d(np.asarray(values))
    # numpy converts a boolean in a list with numbers to a number.
    listed: Sequence[Any] = values if isinstance(values, list | tuple) else ()
    if given.size and (given.dtype.kind not in "fiu" or bool in set(map(type, listed))):
        seen = listed or given.ravel().tolist()
        odd = next((value for value in seen if type(value) not in (int, float)), seen[0])
        raise InvalidRequest(f"values must be numbers; got {odd!r} ({type(odd).__name__})", reason="bad_value")
    return given.astype(F64, copy=False)


def _times(ts_ms: ArrayLike) -> NDArray[np.int64]:
    times = np.atleast_1d(np.asarray(ts_ms))
    if times.dtype.kind == "O" and times.size and all(isinstance(one, datetime) for one in times.ravel()):
        times = np.array([_moment(one) for one in times.ravel()])
    if times.dtype.kind == "M":
        return _whole_ms(times)
    if times.dtype.kind not in "iu" and times.size:
        # Floats are most often seconds, so they are refused instead of guessed.
        raise InvalidRequest(
            f"times of type {times.dtype}; want integers, ms since epoch UTC (seconds: round(seconds * 1000)), or"
            " datetimes",
            reason="bad_time",
        )
    if times.dtype.kind == "u" and times.size and int(times.max()) > np.iinfo(np.int64).max:
        raise InvalidRequest(f"time {int(times.max())} is beyond int64", reason="bad_time")
    return times.astype(I64, copy=False)


def _moment(one: datetime) -> np.datetime64:
    """The time of a datetime or a Timestamp of pandas. Without a zone it is UTC."""
    if one != one:  # Only NaT of pandas differs from itself.
        return np.datetime64("NaT")
    utc = one.astimezone(UTC).replace(tzinfo=None) if one.tzinfo else one
    moment = np.datetime64(utc, "us")
    nanosecond = getattr(utc, "nanosecond", 0) % 1000
    return moment + np.timedelta64(nanosecond, "ns") if nanosecond else moment


def _whole_ms(times: NDArray[np.datetime64]) -> NDArray[np.int64]:
    """Convert times to whole ms. A time between two milliseconds is refused, because the caller must decide how to
    round it."""
    whole = times.astype("datetime64[ms]")
    if np.isnat(times).any():
        raise InvalidRequest("a time is NaT; leave such rows out", reason="bad_time")
    fine = whole.astype(times.dtype) != times
    if fine.any():
        raise InvalidRequest(
            f"{times[fine][0]} is finer than a millisecond, and times are whole ms: round them, for example with "
            'times.astype("datetime64[ms]")',
            reason="fine_time",
        )
    return whole.astype(I64)
