"""A querier in this process: its Reader service on a free port, over stores behind gRPC."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

import grpc

from support.servers.node import JOIN_WITHIN_S
from support.servers.queriers import sources_over
from tsdb.client import Client, connect
from tsdb.client.channel import open_channel
from tsdb.history.interface import HistoryReads
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import PRODUCTION, TimeSet
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcServer, GrpcService, build_server
from tsdb.query.service import QuerierService
from tsdb.query.stores.pool import StoreAddress, StorePool
from tsdb.query.stores.remote import RemoteStore
from tsdb.reader.read_call import SelectLimits
from tsdb.v1 import reader_pb2_grpc


class QuerierNode:
    """A context manager; entering starts it, leaving stops it. addresses: HOST:PORT of the stores."""

    def __init__(
        self,
        addresses: Sequence[str],
        history: HistoryReads | None,
        *,
        topic_id: str,
        partitions: int,
        time_set: TimeSet = PRODUCTION,
        limits: SelectLimits | None = None,
    ) -> None:
        self.pool = StorePool([_address(text) for text in addresses], _open, SystemClock())
        self.sources = sources_over(
            self.pool, history, window_ms=time_set.window_ms, partitions=partitions, topic_id=topic_id
        )
        service = QuerierService(self.sources, limits or SelectLimits())
        add = reader_pb2_grpc.add_ReaderServicer_to_server
        self._server: GrpcServer = build_server(
            [GrpcService("tsdb.v1.Reader", service, add)], host="127.0.0.1", port=0, health=Health()
        )
        self.address = f"127.0.0.1:{self._server.port}"
        self.client: Client = connect(self.address)
        self._channel = grpc.insecure_channel(self.address)
        self.stub = reader_pb2_grpc.ReaderStub(self._channel)

    def __enter__(self) -> Self:
        self.pool.start()
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self._channel.close()
        self.pool.close()
        self._server.close()
        assert self._server.join(JOIN_WITHIN_S), "a call of the querier did not end"
        assert self.pool.join(JOIN_WITHIN_S), "the thread of the pool did not end"


def _address(text: str) -> StoreAddress:
    host, _, port = text.rpartition(":")
    return StoreAddress(host, int(port))


def _open(name: StoreAddress, address: StoreAddress) -> RemoteStore:
    return RemoteStore(str(address), open_channel(str(address), None), (), SystemClock())
