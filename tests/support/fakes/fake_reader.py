"""A gateway and reader in this process, over real gRPC: keeps written samples and fails as a test sets it."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np

from tsdb.model.errors import TsdbError, Unavailable
from tsdb.model.labels import parse_labels, series_id
from tsdb.ops.grpc.errors import abort
from tsdb.v1 import common_pb2, ingest_pb2, ingest_pb2_grpc, reader_pb2, reader_pb2_grpc

TOPIC_ID = "fake-topic"
MESSAGE_OPTIONS = [("grpc.max_receive_message_length", 64 << 20)]
Compare = Callable[[str, str], bool]


class FakeServer(ingest_pb2_grpc.IngestServicer, reader_pb2_grpc.ReaderServicer):
    """One partition. `samples`: label bytes -> [(ts, value)] in arrival order. A context manager; `address` to call.

    `fail`: errors that the next calls end with, oldest first. `drops`: number of next calls that gRPC itself ends, as
    when a server shuts down. `cut_after`: frames of a Select before it ends early. `over_rate`: retry_after_ms of the
    next Writes. `frame_samples`: samples of a data frame. `requests`, `metadata`: what was received. `watch_frames`:
    the answers of the n-th Watch. `losses`: warnings of each answer to a Query. `queries`: the running ones; a
    CancelQuery removes its own. `experiment`: the experiment of the server; "": production.
    """

    def __init__(self, credentials: grpc.ServerCredentials | None = None, *, port: int = 0) -> None:
        self.samples: dict[bytes, list[tuple[int, float]]] = defaultdict(list)
        self.fail: list[TsdbError] = []
        self.drops = 0
        self.cut_after: list[int] = []
        self.frame_samples = 1_000_000
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str]] = []
        self.refuse: Callable[[bytes], str] = lambda labels: ""
        self.over_rate: list[int] = []
        self.watch_frames: list[list[reader_pb2.WatchResponse | TsdbError]] = []
        self.losses: list[str] = []
        self.queries: list[reader_pb2.RunningQuery] = []
        self.state = common_pb2.PartitionState(
            topic_id=TOPIC_ID,
            coverage_start_ms=1000,
            next_offset=1,
            high_watermark=1,
            applied_offset=0,
            ready=True,
        )
        self.history: list[reader_pb2.HistoryState] = []
        self.chunk_stage: reader_pb2.ChunkStageState | None = None
        self.away: list[reader_pb2.PartAway] = []
        self.experiment = ""
        self.stopping = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4), options=MESSAGE_OPTIONS)
        ingest_pb2_grpc.add_IngestServicer_to_server(self, self._server)
        reader_pb2_grpc.add_ReaderServicer_to_server(self, self._server)
        wanted = f"127.0.0.1:{port}"
        found = (
            self._server.add_secure_port(wanted, credentials) if credentials else self._server.add_insecure_port(wanted)
        )
        self.address = f"127.0.0.1:{found}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._server.stop(None).wait()

    def received(self, kind: type[Any]) -> list[Any]:
        """Requests of one type."""
        return [request for request in self.requests if isinstance(request, kind)]

    def _enter(self, request: Any, context: grpc.ServicerContext) -> None:
        self.requests.append(request)
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
        if self.drops:
            self.drops -= 1
            context.cancel()  # type: ignore[no-untyped-call]  # In its stubs alone.
        if self.fail:
            abort(context, self.fail.pop(0))

    def Write(self, request: ingest_pb2.WriteRequest, context: Any) -> ingest_pb2.WriteResponse:
        self._enter(request, context)
        counts = np.frombuffer(request.sample_counts, "<u4").tolist() or [1] * len(request.labels)
        times, values = np.frombuffer(request.ts_ms, "<i8"), np.frombuffer(request.values, "<f8")
        response = ingest_pb2.WriteResponse()
        if self.over_rate:
            response.retry_after_ms = self.over_rate.pop(0)
            response.offenders.add(reason="source_samples_limit", message="source a sends more than 5 samples a second")
            return response
        at = 0
        for index, (labels, count) in enumerate(zip(request.labels, counts, strict=True)):
            why = self.refuse(labels)
            if why:
                response.refused_series += 1
                response.refused_samples += count
                response.offenders.add(series_index=index, reason="too_old", message=why)
            else:
                rows = zip(times[at : at + count].tolist(), values[at : at + count], strict=True)
                self.samples[labels].extend(rows)
                response.samples += count
            at += count
        assert at == len(times) == len(values)
        self.state.applied_offset += 1
        self.state.next_offset = self.state.high_watermark = self.state.applied_offset + 1
        response.tokens.add(topic_id=TOPIC_ID, record_offset=self.state.applied_offset)
        return response

    def Select(self, request: reader_pb2.SelectRequest, context: Any) -> Iterator[reader_pb2.SelectResponse]:
        self._enter(request, context)
        frames = list(self._select_frames(request))
        yield from frames[: self.cut_after.pop(0)] if self.cut_after else frames

    def _select_frames(self, request: reader_pb2.SelectRequest) -> Iterator[reader_pb2.SelectResponse]:
        chosen = self._chosen(request.matchers)
        yield reader_pb2.SelectResponse(header=reader_pb2.SelectHeader(partitions=[self.state]))
        yield reader_pb2.SelectResponse(series=[self._block(chosen, labels=not request.omit_labels)])
        rows = [
            (index, ts_ms, value)
            for index, labels in enumerate(chosen)
            for ts_ms, value in sorted(dict(self.samples[labels]).items())
            if request.start_ms <= ts_ms < request.end_ms
        ]
        for start in range(0, len(rows), self.frame_samples):
            yield reader_pb2.SelectResponse(raw=[raw_frame(rows[start : start + self.frame_samples])])
        yield reader_pb2.SelectResponse(trailer=reader_pb2.SelectTrailer(series=len(chosen), samples=len(rows)))

    def Query(self, request: reader_pb2.QueryRequest, context: Any) -> Iterator[reader_pb2.QueryResponse]:
        """Evaluates PromQL over `samples`."""
        # Imported here: most tests of clients evaluate nothing, and this loads Numba.
        from tsdb.promql.evaluate.query import QueryOptions, instant_query, range_query
        from tsdb.query.promql.answer import messages
        from tsdb.rules.memory import MemoryStorage

        self._enter(request, context)
        if request.options.HasField("max_lag_ms") and self.state.lag_ms > request.options.max_lag_ms:
            abort(context, Unavailable(f"lag {self.state.lag_ms} ms", reason="lagging"))
        storage = MemoryStorage()
        for labels, rows in self.samples.items():
            storage.add(tuple(parse_labels(labels)), rows)
        options = QueryOptions(lookback_ms=request.lookback_ms or QueryOptions().lookback_ms)
        try:
            if request.step_ms:
                times = (request.start_ms, request.end_ms, request.step_ms)
                result = range_query(request.query, storage, *times, options)
            else:
                result = instant_query(request.query, storage, request.start_ms, options)
        except TsdbError as error:
            abort(context, error)
        result = replace(result, warnings=(*result.warnings, *self.losses))
        yield from messages(result, with_histograms=request.histograms)

    def Queries(self, request: reader_pb2.QueriesRequest, context: Any) -> reader_pb2.QueriesResponse:
        self._enter(request, context)
        return reader_pb2.QueriesResponse(queries=self.queries)

    def CancelQuery(self, request: reader_pb2.CancelQueryRequest, context: Any) -> reader_pb2.CancelQueryResponse:
        self._enter(request, context)
        others = [query for query in self.queries if query.number != request.number]
        found = len(others) < len(self.queries)
        self.queries = others
        return reader_pb2.CancelQueryResponse(found=found)

    def Series(self, request: reader_pb2.SeriesRequest, context: Any) -> Iterator[reader_pb2.SeriesResponse]:
        self._enter(request, context)
        chosen = self._chosen(request.matchers)
        header = reader_pb2.SeriesResponse(header=reader_pb2.SelectHeader(partitions=[self.state]))
        if request.group_by:
            combinations = sorted(tuple(dict(parse_labels(s)).get(n, "") for n in request.group_by) for s in chosen)
            groups = reader_pb2.SeriesGroups(
                groups=[
                    reader_pb2.SeriesGroups.Group(values=values, series=len(list(same)))
                    for values, same in itertools.groupby(combinations)
                ]
            )
            yield from (header, reader_pb2.SeriesResponse(groups=groups))
            return
        block = self._block(chosen, labels=True)
        block.first_seen_ms = np.array([min(self.samples[s])[0] for s in chosen], "<i8").tobytes()
        block.last_seen_ms = np.array([max(self.samples[s])[0] for s in chosen], "<i8").tobytes()
        answer = [header, reader_pb2.SeriesResponse(series=block)]
        yield from answer[: self.cut_after.pop(0)] if self.cut_after else answer

    def LabelNames(self, request: reader_pb2.LabelNamesRequest, context: Any) -> reader_pb2.LabelNamesResponse:
        self._enter(request, context)
        names = {name for labels in self._chosen(request.matchers) for name, _ in parse_labels(labels)}
        return reader_pb2.LabelNamesResponse(names=sorted(names))

    def LabelValues(self, request: reader_pb2.LabelValuesRequest, context: Any) -> reader_pb2.LabelValuesResponse:
        self._enter(request, context)
        found = {dict(parse_labels(labels)).get(request.name, "") for labels in self._chosen(request.matchers)}
        return reader_pb2.LabelValuesResponse(values=sorted(found - {""}))

    def Exemplars(self, request: reader_pb2.ExemplarsRequest, context: Any) -> Iterator[reader_pb2.ExemplarsResponse]:
        self._enter(request, context)
        yield reader_pb2.ExemplarsResponse(header=reader_pb2.SelectHeader())

    def Cardinality(self, request: reader_pb2.CardinalityRequest, context: Any) -> reader_pb2.CardinalityResponse:
        """Counts by metric, whatever the request names."""
        self._enter(request, context)
        chosen = self._chosen(request.matchers)
        counts = Counter(dict(parse_labels(labels)).get("__name__", "") for labels in chosen)
        groups = [
            reader_pb2.CardinalityGroup(labels=b"__name__\xff" + name.encode(), series=series)
            for name, series in counts.most_common(request.top or None)
        ]
        return reader_pb2.CardinalityResponse(series=len(chosen), groups_total=len(counts), groups=groups)

    def Coverage(self, request: reader_pb2.CoverageRequest, context: Any) -> reader_pb2.CoverageResponse:
        self._enter(request, context)
        answer = reader_pb2.CoverageResponse(history=self.history, chunk_stage=self.chunk_stage, away=self.away)
        if self.experiment:
            answer.experiment.CopyFrom(reader_pb2.Experiment(name=self.experiment, partitions=[self.state]))
        else:
            answer.partitions.append(self.state)
        return answer

    def Watch(self, request: reader_pb2.WatchRequest, context: Any) -> Iterator[reader_pb2.WatchResponse]:
        self._enter(request, context)
        if not self.watch_frames:
            context.add_callback(self.stopping.set)
            self.stopping.wait()  # A quiet store's stream stays open until the caller leaves.
            return
        for frame in self.watch_frames.pop(0):
            if isinstance(frame, TsdbError):
                abort(context, frame)
            yield frame

    def _chosen(self, matchers: Any) -> list[bytes]:
        """Series whose labels equal the EQUAL matchers; a non-empty matcher of another type matches all series."""
        equal = {m.name: m.value for m in matchers if m.type == common_pb2.Matcher.EQUAL}
        chosen = [labels for labels in self.samples if equal.items() <= dict(parse_labels(labels)).items()]
        return sorted(chosen, key=series_id)

    def _block(self, chosen: list[bytes], *, labels: bool) -> common_pb2.SeriesBlock:
        block = common_pb2.SeriesBlock(series_ids=np.array([series_id(s) for s in chosen], "<u8").tobytes())
        if labels:
            block.labels = b"".join(chosen)
            block.label_lengths = np.array([len(s) for s in chosen], "<u4").tobytes()
        return block


def raw_frame(rows: list[tuple[int, int, float]]) -> reader_pb2.RawFrame:
    """A frame of (series index, ts, value), in order."""
    indexes = np.array([index for index, _, _ in rows])
    first = int(indexes[0])
    return reader_pb2.RawFrame(
        first_series=first,
        counts=np.bincount(indexes - first).astype("<u4").tobytes(),
        ts_ms=np.array([ts_ms for _, ts_ms, _ in rows], "<i8").tobytes(),
        values=np.array([value for _, _, value in rows], "<f8").tobytes(),
    )
