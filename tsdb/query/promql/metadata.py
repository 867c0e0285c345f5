"""Reads the metadata of PromQL from a querier: series, label names and label values.

With a start the answer has the series of history too, where memory does not reach the start. Without a start it has the
series in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from tsdb.answer.answer import LabelsAnswer, SeriesAnswer
from tsdb.answer.spec import EXACT, LabelsSpec, ReadOptions, SeriesSpec
from tsdb.answer.state import losses
from tsdb.model.errors import Unavailable
from tsdb.model.selector import Matcher
from tsdb.model.window import TIME_MAX_MS
from tsdb.query.labels import read_labels
from tsdb.query.series import SeriesRead
from tsdb.query.sources import Sources, partitions_for
from tsdb.reader.read_call import ReadCall, SelectLimits, texts_bytes

LABEL_COPIES = 2  # Copies: the answer, and the labels made from it.


class QuerierMetadata:
    """Reads of one request, on one thread. sources, limits, call, options: see QuerierStorage.

    Without matchers all methods select every series. Ranges include both ends, in ms since the epoch; None leaves that
    side open. Methods raise the errors of a querier's Reader.

    """

    def __init__(self, sources: Sources, limits: SelectLimits, call: ReadCall, options: ReadOptions = EXACT) -> None:
        self._sources = sources
        self._limits = limits
        self._call = call
        self._options = options
        self._warnings: dict[str, None] = {}

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
        spec = SeriesSpec(tuple(matchers), _first(start_ms), _after(end_ms), options=self._options)
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
        return self._texts(LabelsSpec(tuple(matchers), _first(start_ms), _after(end_ms), options=self._options))

    def label_values(
        self, name: str, matchers: Sequence[Matcher], start_ms: int | None = None, end_ms: int | None = None
    ) -> list[str]:
        """Values of one label of the series, sorted. Raises InvalidRequest (bad_label) for an empty name, Overloaded
        (values_limit)."""
        return self._texts(LabelsSpec(tuple(matchers), _first(start_ms), _after(end_ms), name, options=self._options))

    def _texts(self, spec: LabelsSpec) -> list[str]:
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


def _first(start_ms: int | None) -> int | None:
    return None if start_ms is None else _clamped(start_ms)


def _after(end_ms: int | None) -> int | None:
    """The exclusive end of a request that includes times up to end_ms."""
    return None if end_ms is None else _clamped(end_ms) + 1


def _clamped(ms: int) -> int:
    """No sample lies beyond these times, and requests for ranges that do are refused."""
    return min(max(ms, -TIME_MAX_MS), TIME_MAX_MS - 1)
