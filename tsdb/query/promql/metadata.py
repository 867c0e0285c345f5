"""Reads the metadata of PromQL from a querier: series, label names and label values.

With a start the answer has the series of history too, where memory does not reach the start. Without a start it has the
series in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tsdb.client.options import ReadOptions, wire_matchers
from tsdb.client.wire import U64, block_labels, unpack
from tsdb.model.errors import InvalidRequest, Unavailable
from tsdb.model.selector import Matcher
from tsdb.model.window import TIME_MAX_MS
from tsdb.query.labels import LabelsRead
from tsdb.query.promql.losses import losses
from tsdb.query.series import SeriesRead
from tsdb.query.sources import Sources, partitions_for
from tsdb.reader.answer_bytes import texts_bytes
from tsdb.reader.limits import SelectLimits
from tsdb.reader.read_call import ReadCall
from tsdb.reader.request import labels_spec, series_spec
from tsdb.v1 import reader_pb2

_LabelsRequest = reader_pb2.LabelNamesRequest | reader_pb2.LabelValuesRequest

LABEL_COPIES = 2  # The message and the labels made of it.


class QuerierMetadata:
    """Reads of one request, on one thread. sources, limits, call, options: see QuerierStorage.

    Without matchers all methods select every series. Ranges include both ends, in ms since the epoch; None leaves that
    side open. Methods raise the errors of a querier's Reader.


    """

    def __init__(
        self, sources: Sources, limits: SelectLimits, call: ReadCall, options: ReadOptions = ReadOptions()
    ) -> None:
        self._sources = sources
        self._limits = limits
        self._call = call
        self._options = options.to_wire()
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
        request = reader_pb2.SeriesRequest(
            matchers=wire_matchers(matchers), start_ms=_first(start_ms), end_ms=_after(end_ms), options=self._options
        )
        wanted = partitions_for(self._sources, self._options)
        read = SeriesRead(self._sources, request, series_spec(request), self._limits, self._call)
        found: dict[int, list[bytes]] = {}
        for message in read.responses(wanted):
            self._keep(LABEL_COPIES * message.ByteSize())
            if message.HasField("header"):
                self._warn(message.header, request)
            else:
                block = message.series
                found[block.partition] = block_labels(block, len(unpack(block.series_ids, U64, "series_ids")))
        if sorted(found) != wanted:
            raise Unavailable("the answer ended before all partitions came: it was cut off", reason="answer_cut")
        return [labels for partition in wanted for labels in found[partition]]

    def label_names(
        self, matchers: Sequence[Matcher], start_ms: int | None = None, end_ms: int | None = None
    ) -> list[str]:
        """Names of the labels of the series, sorted."""
        request = reader_pb2.LabelNamesRequest(
            matchers=wire_matchers(matchers), start_ms=_first(start_ms), end_ms=_after(end_ms), options=self._options
        )
        header, names = self._labels(request).names(request, partitions_for(self._sources, self._options))
        return self._texts(header, names, request)

    def label_values(
        self, name: str, matchers: Sequence[Matcher], start_ms: int | None = None, end_ms: int | None = None
    ) -> list[str]:
        """Values of one label of the series, sorted. Raises InvalidRequest (bad_label) for an empty name, Overloaded
        (values_limit)."""
        if not name:
            raise InvalidRequest("label name is empty", reason="bad_label")
        request = reader_pb2.LabelValuesRequest(
            name=name,
            matchers=wire_matchers(matchers),
            start_ms=_first(start_ms),
            end_ms=_after(end_ms),
            options=self._options,
        )
        header, values = self._labels(request).values(request, partitions_for(self._sources, self._options))
        return self._texts(header, values, request)

    def _labels(self, request: _LabelsRequest) -> LabelsRead:
        return LabelsRead(self._sources, labels_spec(request), self._call, allow_holes=self._options.allow_holes)

    def _texts(
        self,
        header: reader_pb2.SelectHeader,
        texts: Collection[str],
        request: _LabelsRequest,
    ) -> list[str]:
        self._keep(texts_bytes(texts))
        self._warn(header, request)
        return sorted(texts)

    def _keep(self, size: int) -> None:
        """Reserve memory until the end of the request: all its answers become one."""
        self._call.keep(self._call.kept_bytes + size)

    def _warn(self, header: reader_pb2.SelectHeader, request: reader_pb2.SeriesRequest | _LabelsRequest) -> None:
        start_ms = request.start_ms if request.HasField("start_ms") else -TIME_MAX_MS
        end_ms = request.end_ms if request.HasField("end_ms") else TIME_MAX_MS
        found = losses(header.warnings, header.partitions, start_ms, end_ms, allow_holes=self._options.allow_holes)
        self._warnings.update(dict.fromkeys(found))


def _first(start_ms: int | None) -> int | None:
    return None if start_ms is None else _clamped(start_ms)


def _after(end_ms: int | None) -> int | None:
    """The exclusive end of a request that includes times up to end_ms."""
    return None if end_ms is None else _clamped(end_ms) + 1


def _clamped(ms: int) -> int:
    """No sample lies beyond these times, and requests for ranges that do are refused."""
    return min(max(ms, -TIME_MAX_MS), TIME_MAX_MS - 1)
