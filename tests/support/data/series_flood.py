"""A flood of series: one source that brings ever new series with long labels, as a label with a request's text does."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

from support.servers.processes import Role
from tsdb.client import TsdbError, WriteBatch, connect

SERIES_A_REQUEST = 500
LABEL_VALUE_BYTES = 1_900
PAUSE_S = 0.02  # Pause after a refusal, because a busy loop would take a core.


class SeriesFlood:
    """Writes `series` new series (None: without end) from one source, on its own thread. A context manager; leaving it
    stops the flood.

    accepted: series that were answered with OK; refused: requests by reason; partitions: partitions of the accepted
    series.
    """

    def __init__(
        self,
        gateway: Role,
        series: int | None,
        *,
        instance: str = "flood",
        token: str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._client = connect(gateway.grpc, token=token, timeout_s=timeout_s)
        self._series = series
        self._instance = instance
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        self.messages: dict[str, str] = {}
        self.partitions: set[int] = set()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flood", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(60.0)
        self._client.close()

    @property
    def tried(self) -> int:
        """Series sent, accepted or refused."""
        return self.accepted + self.refused.total() * SERIES_A_REQUEST

    @property
    def ended(self) -> bool:
        """Whether all requests were sent."""
        return self._ended.is_set()

    def wait(self, timeout_s: float) -> None:
        """Wait until all requests were sent."""
        assert self._ended.wait(timeout_s), f"{self.accepted} of {self._series} accepted, refused {self.refused}"

    def _run(self) -> None:
        endless = itertools.count(0, SERIES_A_REQUEST)
        for first in endless if self._series is None else range(0, self._series, SERIES_A_REQUEST):
            if self._stopping.is_set():
                return
            try:
                written = self._client.write(self._batch(first))
            except TsdbError as error:
                self._note(error)
                self._stopping.wait(PAUSE_S)
            else:
                self.accepted += SERIES_A_REQUEST
                self.partitions.update(token.partition for token in written.tokens)
        self._ended.set()

    def _note(self, error: TsdbError) -> None:
        self.refused[error.reason] += 1
        self.messages[error.reason] = error.message

    def _batch(self, first: int) -> WriteBatch:
        batch, now_ms = WriteBatch(), time.time_ns() // 1_000_000
        for number in range(first, first + SERIES_A_REQUEST):
            text = f"{number:08d}".ljust(LABEL_VALUE_BYTES, "x")
            batch.add({"__name__": "flood", "job": "j", "instance": self._instance, "text": text}, now_ms, 1.0)
        return batch
