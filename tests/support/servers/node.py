"""A node in this process: a store over any log, its Reader service on a free port, and a gateway's pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, Unpack, cast

import grpc
import numpy as np
from numpy.typing import ArrayLike

from ingest.limits import IngestLimits
from ingest.pipeline import AcceptedWrite, WritePipeline
from ingest.rows import make_rows
from support.servers.logs import LogFactory, wait_until
from tsdb.client import Client, SelectQuery, SelectResult, connect
from tsdb.client.options import Selector
from tsdb.client.select import SelectKeywords
from tsdb.head.state import HeadLimits
from tsdb.log.interface import METRICS, Log, Watermarks
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.model.labels import canonical_labels
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION, TimeSet, slice_lengths
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcLimits, GrpcServer, GrpcService, build_server
from tsdb.ops.lifecycle import Deadline
from tsdb.reader.read_call import SelectLimits
from tsdb.store.partition import StorePartitionStatus
from tsdb.store.reads import StoreReads
from tsdb.store.service import ReaderService
from tsdb.store.store import Store, StoreOptions
from tsdb.v1 import common_pb2, reader_pb2, reader_pb2_grpc

READY_WITHIN_S = 200.0  # Covers kernels that are not in the cache yet, on a busy machine.
ANSWER_WITHIN_S = 60.0
JOIN_WITHIN_S = 20.0
PLACEMENT = PlacementRule()
SMALL_HEADS = HeadLimits(ring_samples_max=65_536)


def store_options(time_set: TimeSet = PRODUCTION, **changes: object) -> StoreOptions:
    """Default store options of the time set, with two workers."""
    values: dict[str, object] = {
        "time_set": time_set,
        "slices": slice_lengths(time_set.name),
        "hold_ms": time_set.least_hold_ms,
        "limits": SMALL_HEADS,
        "workers": 2,
        "lag_enter_s": 5.0,
        "lag_leave_s": 20.0,
    }
    return StoreOptions(**{**values, **changes})  # type: ignore[arg-type]


def label_set(number: int, *, name: str = "m", instance: int | None = None) -> bytes:
    """Canonical labels of one of many series. The instance, by default one of 8, decides the partition."""
    where = number % 8 if instance is None else instance
    return canonical_labels({"__name__": name, "job": "j", "instance": f"i{where}", "n": str(number)})


class Gateway:
    """Writes through the real pipeline, which may also start with empty caches, as after a restart."""

    def __init__(self, log: Log, time_set: TimeSet = PRODUCTION, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.pipeline = WritePipeline(log, PLACEMENT, log.partitions(METRICS), time_set, IngestLimits(), self.clock)

    def write(
        self,
        labels: Sequence[bytes],
        ts_ms: ArrayLike,
        values: ArrayLike,
        counts: Sequence[int] | None = None,
    ) -> list[common_pb2.Token]:
        """Send one request and return its tokens. Each series has one sample unless counts are given."""
        rows = make_rows(
            labels,
            None if counts is None else np.array(counts, np.uint32),
            np.atleast_1d(np.array(ts_ms, np.int64)),
            np.atleast_1d(np.array(values, np.float64)),
        )
        result: AcceptedWrite = self.pipeline.write(rows, False, Deadline.after(10.0))
        return [
            common_pb2.Token(topic_id=token.topic_id, partition=token.partition, record_offset=token.record_offset)
            for token in result.tokens
        ]


class Node:
    """A store with its Reader. A context manager; entering starts it, leaving stops it."""

    def __init__(
        self,
        log: Log,
        options: StoreOptions | None = None,
        *,
        limits: SelectLimits | None = None,
        partitions: Sequence[int] | None = None,
        clock: Clock | None = None,
        port: int = 0,
        grpc_limits: GrpcLimits | None = None,
    ) -> None:
        self._log = log
        chosen = range(log.partitions(METRICS)) if partitions is None else partitions
        self.store = Store(log, list(chosen), options or store_options(), clock or SystemClock())
        reads = StoreReads(self.store.topic_id, self.store.partitions, self.store.applied, limits or SelectLimits())
        service = ReaderService(reads)
        add = reader_pb2_grpc.add_ReaderServicer_to_server
        self._server: GrpcServer = build_server(
            [GrpcService("tsdb.v1.Reader", service, add, always=("Coverage",))],
            host="127.0.0.1",
            port=port,
            health=Health(),
            limits=grpc_limits,
        )
        self.port = self._server.port
        self.address = f"127.0.0.1:{self._server.port}"
        self.client: Client = connect(self.address)
        self._channel = grpc.insecure_channel(self.address)
        self.stub = reader_pb2_grpc.ReaderStub(self._channel)

    def __enter__(self) -> Self:
        self.store.start()
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self._channel.close()
        self.store.close()
        self._server.close()
        assert self._server.join(JOIN_WITHIN_S), "a call of the Reader did not end"
        assert self.store.join(JOIN_WITHIN_S), "a thread of the store did not end"

    @contextmanager
    def wait_ready_on_entry(self) -> Iterator[Self]:
        """Like `with node`, but the block begins when the node is ready."""
        with self:
            yield self.wait_ready()

    def ask(self, selector: Selector, start_ms: int, end_ms: int, **query: Unpack[SelectKeywords]) -> SelectResult:
        """As the client's select without retries: a refusal is raised at once."""
        call = SelectQuery(selector, start_ms, end_ms, **query).call()
        reader = call.reader()
        for message in self.stub.Select(cast(reader_pb2.SelectRequest, call.request), timeout=ANSWER_WITHIN_S):
            reader.add(message)
        return reader.finish()

    def status(self, partition: int = 0) -> StorePartitionStatus:
        """The status of one partition now."""
        return self.store.partitions[partition].status()

    def reason(self, partition: int = 0) -> str:
        """Reason why a partition is not ready; empty when it is ready."""
        return self.status(partition).readiness.reason

    def wait_ready(self) -> Self:
        """Wait until every partition is ready and has applied the whole log of now."""
        marks: dict[int, Watermarks] = {}
        refusals: list[Unavailable] = []

        def has_marks() -> bool:
            try:
                marks.update(self._log.watermarks(METRICS, list(self.store.partitions)))
            except Unavailable as error:  # After a broker was down, a new client may reconnect later than the store.
                refusals[:] = [error]
                return False
            return True

        def done() -> bool:
            return all(s.readiness.ready and s.next_offset >= marks[s.partition].high for s in self.statuses())

        wait_until(has_marks, READY_WITHIN_S, describe=lambda: (refusals, self.statuses()))
        wait_until(done, READY_WITHIN_S, describe=lambda: (marks, self.statuses()))
        return self

    def wait_reason(self, reason: str, partition: int = 0) -> None:
        """Wait until a partition has this reason."""
        wait_until(lambda: self.reason(partition) == reason, READY_WITHIN_S)

    def statuses(self) -> list[StorePartitionStatus]:
        """The statuses of all partitions now. Raises the exception that ended a worker."""
        failure = self.store.failure()
        if failure is not None:
            raise failure
        return self.store.statuses()


def make_topics(factory: LogFactory, partitions: int = 2) -> Log:
    """Topics with CreateTime, and a log over them."""
    factory.create(partitions, timestamp_type="CreateTime")
    return factory.open()


@contextmanager
def refused(kind: type[TsdbError], reason: str) -> Iterator[list[TsdbError]]:
    """Expect an error of this kind in the block, from gRPC or from a client; it is appended to the list."""
    caught: list[TsdbError] = []
    try:
        yield caught
    except grpc.RpcError as rpc_error:
        caught.append(from_rpc_error(rpc_error))
    except TsdbError as error:
        caught.append(error)
    assert caught, f"was not refused; want {kind.__name__} ({reason})"
    got = caught[0]
    assert (type(got), got.reason) == (kind, reason), f"got {type(got).__name__} ({got.reason}): {got.message}"
