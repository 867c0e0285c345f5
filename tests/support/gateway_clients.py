"""Clients of a gateway process over gRPC, each with series of its own, and the judgement of what they were told."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
import numpy as np

from support.gateway_server import call, write_request
from support.gateways import label_set
from support.log_reading import LogContents
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Overloaded, Unavailable
from tsdb.model.labels import series_id
from tsdb.model.window import index_epoch
from tsdb.v1 import ingest_pb2, ingest_pb2_grpc

CLIENTS = 8
SERIES = 5  # Others after every 20 requests, so that announcements are under way at kills too.
TIMEOUT_S = 15.0
PAUSE_S = 0.02  # Between tries while nothing listens.


@dataclass(slots=True)
class _Told:
    """What one client was told. failed: begin and end of each call that was not answered OK, monotonic."""

    acked: dict[tuple[int, int], int] = field(default_factory=dict)
    tokens: list[tuple[int, int]] = field(default_factory=list)
    failed: list[tuple[float, float]] = field(default_factory=list)


class GatewayClients:
    """CLIENTS threads on one address, each sending a request until it is told OK, then the next. A context manager."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._base_ms = SystemClock().now_ms()
        self._told = [_Told() for _ in range(CLIENTS)]
        self._stopping = threading.Event()
        self._broken: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]

    @property
    def oks(self) -> int:
        """Requests told OK."""
        return sum(len(told.acked) for told in self._told) // SERIES

    def cut_off(self, at: float) -> int:
        """Calls that were under way at a moment (monotonic) and then failed."""
        return sum(begin < at < end for told in self._told for begin, end in told.failed)

    def stop(self) -> None:
        """After the request under way; raises what broke a client."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S * 2)
            assert not thread.is_alive()
        if self._broken:
            raise self._broken[0]

    def judge(self, contents: LogContents) -> None:
        """Every sample told OK is there with its value, every token names a record, every sample was announced."""
        for told in self._told:
            lost = {key for key, bits in told.acked.items() if contents.values.get(key) != bits}
            assert not lost, f"{len(lost)} samples told OK are not in the log"
            assert not [place for place in told.tokens if not contents.held.get(place)]
        unknown = [key for key in contents.values if (key[0], index_epoch(*key)) not in contents.announced]
        assert unknown == []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, number: int) -> None:
        try:
            with grpc.insecure_channel(self._address, options=_RECONNECT_AT_ONCE) as channel:
                stub = ingest_pb2_grpc.IngestStub(channel)
                index = 0
                while not self._stopping.is_set():
                    index += self._send(stub, number, index)
        except BaseException as error:
            self._broken.append(error)

    def _send(self, stub: Any, number: int, index: int) -> bool:
        labels = [label_set(index // 20 * SERIES + n, instance=number * 10 + n) for n in range(SERIES)]
        ts_ms, values = self._base_ms - index, [float(index * 1000 + n) for n in range(SERIES)]
        told, begin = self._told[number], time.monotonic()
        try:
            answer = call(stub, write_request(labels, [ts_ms] * SERIES, values), TIMEOUT_S)
        except (Unavailable, Overloaded):
            told.failed.append((begin, time.monotonic()))
            self._stopping.wait(PAUSE_S)
            return False
        self._note(told, answer, labels, ts_ms, values)
        return True

    def _note(
        self, told: _Told, answer: ingest_pb2.WriteResponse, labels: list[bytes], ts_ms: int, values: list[float]
    ) -> None:
        bits = np.array(values).view(np.int64).tolist()
        told.acked.update(zip(((series_id(one), ts_ms) for one in labels), bits, strict=True))
        told.tokens += [(token.partition, token.record_offset) for token in answer.tokens]


_RECONNECT_AT_ONCE = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
]
