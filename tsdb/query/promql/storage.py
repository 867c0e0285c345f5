"""Storage of PromQL over a querier: reads samples, series and labels for one request.

Samples in memory come as columns and are decoded on all cores. Partitions that need history come as samples.
Exactness, limits and refusals are those of the querier's Reader. With a start, series and labels have those of history
too, where memory does not reach the start; without a start they are those in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tsdb.answer.answer import Answer, LabelsAnswer, PartitionAnswer, SeriesAnswer, joined_parts, malformed
from tsdb.answer.columns import joined_body, joined_series
from tsdb.answer.spec import EXACT, ExemplarsSpec, LabelsSpec, ReadOptions, SelectSpec, SeriesSpec
from tsdb.answer.state import MemoryState, losses
from tsdb.codec.records.exemplar_record import Exemplars
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.model.selector import Matcher, MatchType
from tsdb.model.window import TIME_MAX_MS
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.query.exemplars import read_exemplars
from tsdb.query.join.joined_read import AnswerTotals
from tsdb.query.labels import read_labels
from tsdb.query.select import SelectRead
from tsdb.query.series import SeriesRead
from tsdb.query.sources import Sources, partitions_for
from tsdb.query.stores.fan_out import ShareStreams
from tsdb.reader.read_call import ReadCall, SelectLimits, texts_bytes
from tsdb.selector.selectors import is_utf8, matches_empty

SAMPLE_BYTES = 16
LABEL_COPIES = 2  # Copies: the answer, and the labels made from it.
SMALL_SERIES_MAX, SMALL_SAMPLES_MAX = 500, 50_000  # Bounds of one read of a trial, whole columns included.
SERIES_BYTES = 64  # Bytes beside the labels: the object of the labels, its entry in a list, and a start.

NO_SERIES = StoredSeries((), np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))


class QuerierStorage:
    """Implements Storage of tsdb.promql, and reads of series and labels. Used by one request, on one thread, in a
    `with` block that ends its call.

    limits: bounds of each read. call: the call of the whole request; it bounds the time of all reads and their memory,
    which counts until the call ends. options: deviations from an exact and fresh answer that the request accepts; the
    warnings then name each loss. Equal selections are read once. Without matchers, reads of series and labels select
    every series; their ranges include both ends, in ms since the epoch, and None leaves a side open.
    """

    def __init__(self, sources: Sources, limits: SelectLimits, call: ReadCall, options: ReadOptions = EXACT) -> None:
        self._sources = sources
        self._limits = limits
        self._call = call
        self._options = options
        self._found: dict[tuple[tuple[Matcher, ...], int, int], StoredSeries] = {}
        self._warnings: dict[str, None] = {}

    def __enter__(self) -> QuerierStorage:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._call.__exit__(kind, error, trace)

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        """Implements Storage.select. Series come by partition and series id. Equal selections share their arrays.

        Raises the errors of Reader.Select of a querier: Unavailable, OutOfCoverage, HoleInRange, CorruptData,
        Overloaded, InvalidRequest.

        """
        # No sample lies beyond these times, and Select refuses ranges that do.
        start_ms, end_ms = max(start_ms, -TIME_MAX_MS), min(end_ms, TIME_MAX_MS - 1)
        valid = valid_matchers(matchers)
        if valid is None or start_ms > end_ms:
            return NO_SERIES
        key = tuple(valid), start_ms, end_ms
        found = self._found.get(key)
        if found is None:
            kept_bytes = self._call.kept_bytes
            found = self._found[key] = self._read(*key)
            self._call.keep(kept_bytes + _bytes(found))
        return found

    def _read(self, matchers: tuple[Matcher, ...], start_ms: int, last_ms: int) -> StoredSeries:
        end_ms, limits = last_ms + 1, self._limits  # Ranges of PromQL include both ends.
        spec = SelectSpec(
            matchers,
            None,
            start_ms,
            end_ms,
            columns=True,
            untrimmed=True,
            options=self._options,
            series_max=limits.series_max,
            samples_max=limits.samples_max,
            bytes_max=limits.bytes_max,
        )
        spec.check()
        answer = self._from_memory(spec)
        if answer is None:
            # The parts of several sources are joined by a call that trims columns alone.
            parts, warnings, states = self._read_sources(replace(spec, untrimmed=False))
            found = joined_series(parts, start_ms, end_ms, self._call.hold)
        else:
            self._call.keep(self._call.kept_bytes + answer.body.nbytes)
            warnings, states = answer.warnings, answer.states or ()
            found = joined_body(answer.body, start_ms, end_ms, self._call.hold)
        if warnings or self._options.allow_holes:
            warnings = losses(warnings, states, start_ms, end_ms, allow_holes=self._options.allow_holes)
        return StoredSeries(found.canonical, found.starts, found.ts_ms, found.values, tuple(warnings), found.details)

    def _from_memory(self, spec: SelectSpec) -> Answer | None:
        """The answer of the store of this process, where it has all samples."""
        return self._sources.select(spec, self._call)

    def _read_sources(self, spec: SelectSpec) -> tuple[Sequence[PartitionAnswer], Sequence[str], Sequence[MemoryState]]:
        """The parts by partition, warnings and states of an answer of several stores and history."""
        wanted = partitions_for(self._sources, self._options)
        opened = SelectRead(self._sources, spec, self._limits, self._call).open(wanted, keeps=True)
        parts: list[PartitionAnswer] = []
        for one in opened.alone:
            parts += joined_parts(self._kept(one, opened.totals))
        for of_store in opened.joined:
            parts += of_store
        return _ordered(parts, wanted), opened.warnings, opened.states

    def _kept(self, opened: ShareStreams[Answer], totals: AnswerTotals) -> Iterator[Answer]:
        """The answers of a store. All of them stay in memory, not decoded, until the selection is joined."""
        for answer in opened.messages():
            self._call.check_going()
            self._call.keep(self._call.kept_bytes + answer.body.nbytes)
            if answer.body.counts is not None:
                totals.add(answer.body.counts)
            yield answer

    @property
    def warnings(self) -> Sequence[str]:
        """A sentence for each loss that the answers so far may have."""
        return tuple(self._warnings)

    def series(
        self, matchers: Sequence[Matcher], start_ms: int | None = None, end_ms: int | None = None
    ) -> list[bytes]:
        """Canonical labels of the series, each once, by partition and series id. In memory a series counts when it has
        a sample in the range; in history when it was announced for a time near the range (proto/tsdb/v1/reader.proto).
        """
        valid = valid_matchers(matchers)
        if valid is None:
            return []
        spec = SeriesSpec(tuple(valid), _first(start_ms), _after(end_ms), options=self._options)
        spec.check()
        wanted = partitions_for(self._sources, self._options)
        found: dict[int, list[bytes]] = {}
        for part in SeriesRead(self._sources, spec, self._limits, self._call).answers(wanted):
            self._keep(LABEL_COPIES * part.nbytes)
            if part.series is None:
                self._warn(part, spec)
            else:
                found[part.series.partition] = part.series.canonical()
        if sorted(found) != wanted:
            raise Unavailable("the answer ended before all partitions came: it was cut off", reason="answer_cut")
        return [labels for partition in wanted for labels in found[partition]]

    def label_names(
        self, matchers: Sequence[Matcher], start_ms: int | None = None, end_ms: int | None = None
    ) -> list[str]:
        """Names of the labels of the series, sorted."""
        return self._texts(None, matchers, start_ms, end_ms)

    def label_values(
        self, name: str, matchers: Sequence[Matcher], start_ms: int | None = None, end_ms: int | None = None
    ) -> list[str]:
        """Values of one label of the series, sorted. Raises InvalidRequest (bad_label) for an empty name, Overloaded
        (values_limit)."""
        return self._texts(name, matchers, start_ms, end_ms)

    def exemplars(
        self, matchers: Sequence[Matcher], start_ms: int | None = None, end_ms: int | None = None
    ) -> list[tuple[bytes, Exemplars]]:
        """Canonical labels of the series with exemplars in the range, and these, by partition and series id. Memory
        alone has exemplars, and a bounded number of each series."""
        valid = valid_matchers(matchers)
        first_ms, last_ms = _clamped(_open(start_ms, -TIME_MAX_MS)), _clamped(_open(end_ms, TIME_MAX_MS))
        if valid is None or first_ms > last_ms:
            return []
        spec = ExemplarsSpec(tuple(valid), first_ms, last_ms + 1, self._options)
        spec.check()
        found: list[tuple[bytes, Exemplars]] = []
        wanted = partitions_for(self._sources, self._options)
        for part in read_exemplars(self._sources, spec, wanted, self._call):
            self._keep(LABEL_COPIES * part.nbytes)
            if part.series is None or part.exemplars is None:
                self._warnings.update(dict.fromkeys(part.warnings))
                continue
            bounds = np.searchsorted(part.exemplars.series_id, part.series.series_ids, side="right").tolist()
            for labels, start, end in zip(part.series.canonical(), [0, *bounds], bounds, strict=False):
                found.append((labels, part.exemplars.take(np.arange(start, end))))
        return found

    def _texts(
        self, name: str | None, matchers: Sequence[Matcher], start_ms: int | None, end_ms: int | None
    ) -> list[str]:
        valid = valid_matchers(matchers)
        if valid is None:
            return []
        spec = LabelsSpec(tuple(valid), _first(start_ms), _after(end_ms), name, options=self._options)
        spec.check()
        answer = read_labels(self._sources, spec, self._call)
        self._keep(texts_bytes(answer.texts))
        self._warn(answer, spec)
        return sorted(answer.texts)

    def _keep(self, size: int) -> None:
        """Reserve memory until the end of the request: all its answers become one."""
        self._call.keep(self._call.kept_bytes + size)

    def _warn(self, answer: SeriesAnswer | LabelsAnswer, spec: SeriesSpec | LabelsSpec) -> None:
        start_ms = -TIME_MAX_MS if spec.start_ms is None else spec.start_ms
        allow_holes = self._options.allow_holes
        found = losses(answer.warnings, answer.states or (), start_ms, spec.needed_end_ms, allow_holes=allow_holes)
        self._warnings.update(dict.fromkeys(found))


class NotSmall(TsdbError):
    """A trial of a query would exceed a bound, or wait."""

    default_reason = "not_small"


class SmallStorage(QuerierStorage):
    """The storage of a trial: it reads few samples, from the memory of this process, and raises NotSmall or Overloaded
    in place of a larger read, or of one that may wait."""

    def __init__(self, sources: Sources, limits: SelectLimits, call: ReadCall, options: ReadOptions) -> None:
        small = limits.lowered(SMALL_SERIES_MAX, SMALL_SAMPLES_MAX, SMALL_SAMPLES_MAX * SAMPLE_BYTES)
        super().__init__(sources, small, call, options)

    def _from_memory(self, spec: SelectSpec) -> Answer:
        memory = self._sources.memory
        if memory is None or not memory.is_small(spec):
            raise NotSmall("the read is not small")
        answer = super()._from_memory(spec)
        if answer is None:
            raise NotSmall("memory does not have all samples")
        return answer


def _ordered(parts: list[PartitionAnswer], wanted: Sequence[int]) -> list[PartitionAnswer]:
    """The parts by partition. Raises CorruptData (answer_malformed) unless exactly the partitions `wanted` came, each
    once."""
    came = [part.partition for part in parts]
    if came == wanted:
        return parts
    if sorted(came) != wanted:
        raise malformed(f"partitions {sorted(came)} came; partitions {wanted} were requested")
    return sorted(parts, key=lambda part: part.partition)


def _bytes(stored: StoredSeries) -> int:
    details = 0 if stored.details is None else stored.details.nbytes
    return details + SAMPLE_BYTES * len(stored.ts_ms) + SERIES_BYTES * len(stored.labels) + sum(map(len, stored.labels))


def _open(ms: int | None, otherwise: int) -> int:
    return otherwise if ms is None else ms


def _first(start_ms: int | None) -> int | None:
    return None if start_ms is None else _clamped(start_ms)


def _after(end_ms: int | None) -> int | None:
    """The exclusive end of a request that includes times up to end_ms."""
    return None if end_ms is None else _clamped(end_ms) + 1


def _clamped(ms: int) -> int:
    """No sample lies beyond these times, and requests for ranges that do are refused."""
    return min(max(ms, -TIME_MAX_MS), TIME_MAX_MS - 1)


def valid_matchers(matchers: Sequence[Matcher]) -> Sequence[Matcher] | None:
    """The matchers without those that hold for each series since their text is not UTF-8, as all labels are; None when
    one of these holds for no series."""
    kept: list[Matcher] = []
    for matcher in matchers:
        if (matcher.name + matcher.value).isascii() or (is_utf8(matcher.name) and is_utf8(matcher.value)):
            kept.append(matcher)
        elif not _holds_always(matcher):
            return None
    return kept


def _holds_always(matcher: Matcher) -> bool:
    """Whether a matcher is true of all series because its text is not UTF-8: no label has that name, or no label has
    that value."""
    return matches_empty(matcher) if is_utf8(matcher.value) else matcher.type is MatchType.NOT_EQUAL
