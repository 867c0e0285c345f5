"""The HTTP receiver of a gateway over a fake log: real sockets, real bytes, a clock that stands still."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from ingest.http.protocol import WriteProtocol
from ingest.http.receiver import HttpReceiver, ReceiverLimits
from ingest.limits import IngestLimits
from support.servers.gateways import Bench
from tsdb.log.interface import METADATA
from tsdb.log.metadata import MetadataWriter, decode_family
from tsdb.model.family import Family
from tsdb.model.labels import format_series
from tsdb.ops.auth import Tokens
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.server import serve_ops

HELD_BYTES = 256 << 20


@dataclass(frozen=True)
class HttpReply:
    """An answer; names of headers in lower case."""

    status: int
    text: str
    headers: dict[str, str]


@dataclass
class WriteServer:
    """The receiver of `bench`. `post` sends one request on a new connection."""

    bench: Bench
    port: int = 0
    headers: dict[str, str] = field(default_factory=dict)

    def post(self, path: str, body: bytes, *, method: str = "POST", **headers: str) -> HttpReply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in {**self.headers, **named}.items() if value}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request(method, path, body, sent)
            got = connection.getresponse()
            found = {name.lower(): value for name, value in got.getheaders()}
            return HttpReply(got.status, got.read().decode(), found)

    def stored(self) -> dict[str, dict[int, int]]:
        """Series in the notation of Prometheus -> ts_ms -> bits of the value, as readers show them."""
        names = {one.series_id: format_series(one.canonical) for one in self.bench.log.announcements()}
        found: dict[str, dict[int, int]] = {}
        for (series_id, ts_ms), bits in self.bench.log.samples().items() if self.bench.log.of("metrics") else ():
            found.setdefault(names[series_id], {})[ts_ms] = bits
        return found

    def families(self) -> list[Family]:
        """Records of the topic `metadata`, in the order of their appends."""
        return [decode_family((one.key or b"").decode(), one.value) for one in self.bench.log.of(METADATA)]


@contextmanager
def write_server(
    *protocols: Callable[[IngestLimits], WriteProtocol], bench: Bench | None = None, tokens: Tokens | None = None
) -> Iterator[WriteServer]:
    """A server with the protocols, each made for the limits of the gateway."""
    bench = bench or Bench()
    receiver = HttpReceiver(
        [make(bench.limits) for make in protocols],
        bench.pipeline.submit,
        MetadataWriter(bench.log, bench.clock).write,
        RequestBytes(HELD_BYTES),
        ReceiverLimits(bench.limits.request_bytes_max),
    )
    receiver.start()
    with serve_ops("127.0.0.1", 0, Readiness, Liveness, bodies=receiver, tokens=tokens) as server:
        yield WriteServer(bench, server.port)
    receiver.close()
    assert receiver.join(10.0)
