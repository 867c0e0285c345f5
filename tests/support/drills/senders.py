"""Writers to a gateway in this process, each with its own series, and a check of their answers."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from ingest.gateway import Gateway
from ingest.limits import IngestLimits
from ingest.rows import make_rows
from support.oracles.log_reading import LogContents
from support.servers.gateways import label_set
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.model.labels import series_id
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import index_epoch
from tsdb.ops.lifecycle import Deadline

WRITERS = 8


def gateway_on(log: Log, *, produce_timeout_s: float = 10.0) -> Gateway:
    """A started gateway in this process."""
    limits = IngestLimits(produce_timeout_s=produce_timeout_s)
    made = Gateway(log, PlacementRule(), log.partitions(METRICS), PRODUCTION, limits, SystemClock())
    made.start()
    return made


class Sender:
    """Sends five series at one timestamp a request until it is answered OK, then the next; keeps the answers."""

    def __init__(self, number: int, gateway: Gateway) -> None:
        self.labels = [label_set(n, instance=number * 10 + n) for n in range(5)]
        self.acked: dict[tuple[int, int], int] = {}
        self.tokens: list[tuple[int, int]] = []
        self.errors: list[TsdbError] = []
        self.sending = False
        self._ids = [series_id(one) for one in self.labels]
        self._gateway = gateway
        self._base_ms = SystemClock().now_ms()
        self._index = 0

    def send(self) -> bool:
        """Send one request. False: a retryable refusal. Other errors are raised."""
        ts_ms = self._base_ms - self._index
        values = np.arange(len(self.labels), dtype=np.float64) + self._index * 1000
        times = np.full(len(self.labels), ts_ms, np.int64)
        self.sending = True
        try:
            result = self._gateway.pipeline.write(
                make_rows(self.labels, None, times, values), False, Deadline.after(10)
            )
        except (Unavailable, Overloaded) as error:
            self.errors.append(error)
            return False
        finally:
            self.sending = False
        self.acked.update(zip(((one, ts_ms) for one in self._ids), values.view(np.int64).tolist(), strict=True))
        self.tokens += [(token.partition, token.record_offset) for token in result.tokens]
        self._index += 1
        return True


class Senders:
    """WRITERS senders, a thread each, until `stop`, or until each has this number of OK answers. A context manager."""

    def __init__(self, gateway: Gateway, oks: int | None = None) -> None:
        self.senders = [Sender(number, gateway) for number in range(WRITERS)]
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(sender, oks)) for sender in self.senders]
        self._broken: list[BaseException] = []

    @property
    def oks(self) -> int:
        """Number of requests answered OK."""
        return sum(len(sender.acked) for sender in self.senders) // 5

    @property
    def errors(self) -> int:
        """Number of requests refused with a retryable error."""
        return sum(len(sender.errors) for sender in self.senders)

    @property
    def in_flight(self) -> int:
        """Requests not answered yet."""
        return sum(sender.sending for sender in self.senders)

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is not None:
            self._stopping.set()
        self.join()

    def stop(self) -> None:
        """Stop after the request under way."""
        self._stopping.set()
        self.join()

    def join(self) -> None:
        """Wait for the end. Raises the exception of a failed sender."""
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive()
        if self._broken:
            raise self._broken[0]

    def _run(self, sender: Sender, oks: int | None) -> None:
        try:
            sent = 0
            while not self._stopping.is_set() and sent != oks:
                sent += sender.send()
        except BaseException as error:
            self._broken.append(error)


def judge(contents: LogContents, senders: Sequence[Sender]) -> None:
    """Every acknowledged sample is there, every token names a record with samples, and every sample was announced."""
    for sender in senders:
        lost = {key: bits for key, bits in sender.acked.items() if contents.values.get(key) != bits}
        assert lost == {}, f"{len(lost)} acknowledged samples are not in the log"
        ids = {series_id(one) for one in sender.labels}
        for place in sender.tokens:
            # The record may hold samples of other requests too.
            assert ids & set(contents.held[place]), "a token of a record without samples of its request"
    unknown = [key for key in contents.values if (key[0], index_epoch(*key)) not in contents.announced]
    assert unknown == []
