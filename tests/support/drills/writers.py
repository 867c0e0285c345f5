"""Writers: clients that write all the time and never give a request up, and a check of their answers.

Each request of a writer has new samples, now and then of a new series, and one sample that overwrites the one before it
(same series, same time). A request is sent again until it is answered OK; only then comes
the next. So the newest acknowledged overwrite must stand, and nothing acknowledged may be missing.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from support.servers.logs import wait_until
from tsdb.client import Client, Overloaded, ReadOptions, TsdbError, Unavailable, WriteBatch, connect
from tsdb.model.labels import canonical_labels
from tsdb.v1 import common_pb2

WRITERS = 8
SERIES = 4
REQUESTS_A_SERIES = 20  # After this number new series follow, so that faults also meet announcements.
STOP_WITHIN_S = 90.0
SAMPLE, OVERWRITTEN = "fault_sample", "fault_overwritten"

Key = tuple[bytes, int]


@dataclass(slots=True)
class _Ledger:
    """Samples and answers of one writer. calls: begin and end of each, monotonic; the end is None while it runs."""

    sent: dict[Key, float] = field(default_factory=dict)
    acked: set[Key] = field(default_factory=set)
    oks: int = 0
    begun_at: float | None = None
    calls: list[tuple[float, float]] = field(default_factory=list)
    errors: list[TsdbError] = field(default_factory=list)
    tokens: dict[int, common_pb2.Token] = field(default_factory=dict)

    def begun_of_open(self, at: float) -> set[float | None]:
        """Begins (monotonic) of the calls that had no answer at `at` (monotonic), None where none runs."""
        running = self.begun_at  # First, because a call that ends meanwhile is in `calls`.
        return {running} | {begin for begin, end in list(self.calls) if end > at}


class Writers:
    """WRITERS threads with a client each. A context manager: leaving it lets each finish its request.

    timeout_s: the timeout of one call with the client's retries. Only Unavailable and Overloaded are sent again.
    rest_s: the pause of a writer after each OK.
    """

    def __init__(self, address: str, *, timeout_s: float = 60.0, rest_s: float = 0.0) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._rest_s = rest_s
        self.base_ms = time.time_ns() // 1_000_000
        self._job = f"writers-{uuid.uuid4().hex[:8]}"  # New series, different from all that the store has.
        self._ledgers = [_Ledger() for _ in range(WRITERS)]
        self._stopping = threading.Event()
        self._broken: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(WRITERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if kind is None:
            self.stop()

    @property
    def selector(self) -> str:
        """Selector of the samples that each writer sends once."""
        return f'{SAMPLE}{{job="{self._job}"}}'

    @property
    def acked(self) -> set[Key]:
        """(labels, ts_ms) of all samples answered with OK, overwrites left out."""
        return {key for ledger in self._ledgers for key in list(ledger.acked)}

    @property
    def oks(self) -> int:
        """Number of requests answered OK."""
        return sum(ledger.oks for ledger in self._ledgers)

    @property
    def errors(self) -> list[TsdbError]:
        """Errors of the calls that did not end with OK."""
        return [error for ledger in self._ledgers for error in ledger.errors]

    @property
    def slowest_s(self) -> float:
        """The longest call so far."""
        return max((end - begin for ledger in self._ledgers for begin, end in ledger.calls), default=0.0)

    def across(self, begin: float, end: float) -> int:
        """Calls that were under way all through [begin, end] (monotonic), ended or not."""
        return sum(b is not None and b < begin for ledger in self._ledgers for b in ledger.begun_of_open(end))

    def wait_for_oks(self, count: int, within_s: float = 120.0) -> None:
        """Wait until `count` more requests are answered OK. Raises the error that broke a writer."""
        goal = self.oks + count
        wait_until(lambda: self.oks >= goal or bool(self._broken), within_s)
        self._raise()

    def wait_in_flight(self, within_s: float = 60.0) -> float:
        """Wait for a request in flight. Returns an instant (monotonic) at which one was, whatever came after it."""
        instants: list[float] = []

        def seen() -> bool:
            instants.append(time.monotonic())
            return self.across(instants[-1], instants[-1]) > 0 or bool(self._broken)

        wait_until(seen, within_s)
        self._raise()
        return instants[-1]

    def stop(self) -> None:
        """Stop after the current request, which is sent until its answer is OK."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(STOP_WITHIN_S)
            assert not thread.is_alive(), "a request was never answered OK"
        self._raise()

    def tokens(self) -> list[common_pb2.Token]:
        """The newest acknowledged record of each partition."""
        newest: dict[int, common_pb2.Token] = {}
        for ledger in self._ledgers:
            for partition, token in list(ledger.tokens.items()):
                if partition not in newest or newest[partition].record_offset < token.record_offset:
                    newest[partition] = token
        return list(newest.values())

    def judge(self, reader: Client) -> int:
        """Once stopped: a read has every sample answered with OK, each newest overwrite, and no sample never sent.

        Returns how many acknowledged samples were checked.
        """
        got = self._read(reader, SAMPLE)
        sent = {key: value for ledger in self._ledgers for key, value in ledger.sent.items()}
        acked = self.acked
        lost = [key for key in acked if got.get(key) != sent[key]]
        assert not lost, f"{len(lost)} of {len(acked)} samples answered with OK are not read back, such as {lost[:3]}"
        assert not [key for key, value in got.items() if sent.get(key) != value], "a sample nobody sent"
        overwritten = self._read(reader, OVERWRITTEN)
        stands = [overwritten.get((self._labels(OVERWRITTEN, number, 0), self.base_ms)) for number in range(WRITERS)]
        assert stands == [float(ledger.oks) for ledger in self._ledgers], (
            "an older write stands over a newer acknowledged one"
        )
        return len(acked) + WRITERS

    def _read(self, reader: Client, name: str) -> dict[Key, float]:
        since_ms = self.base_ms - 86_400_000
        options = ReadOptions(after=self.tokens())
        answer = reader.select(f'{name}{{job="{self._job}"}}', since_ms, self.base_ms + 1, options=options)
        return {
            (series.canonical, ts_ms): value
            for series in answer.series
            for ts_ms, value in zip(series.ts_ms.tolist(), series.values.tolist(), strict=True)
        }

    def _raise(self) -> None:
        if self._broken:
            raise self._broken[0]

    def _run(self, number: int) -> None:
        try:
            with connect(self._address, timeout_s=self._timeout_s) as client:
                while not self._stopping.is_set():
                    self._send_until_ok(client, number)
                    self._stopping.wait(self._rest_s)
        except BaseException as error:
            self._broken.append(error)

    def _send_until_ok(self, client: Client, number: int) -> None:
        ledger = self._ledgers[number]
        batch, samples = self._request(number, ledger.oks + 1)
        ledger.sent.update(samples)
        while not self._try(client, batch, ledger):
            pass  # The client has waited between its own tries, and the call's timeout bounds each round.
        ledger.acked.update(samples)
        ledger.oks += 1

    def _request(self, number: int, index: int) -> tuple[WriteBatch, dict[Key, float]]:
        ts_ms, first = self.base_ms - index, index // REQUESTS_A_SERIES * SERIES
        samples = {(self._labels(SAMPLE, number, first + n), ts_ms): float(index * 1000 + n) for n in range(SERIES)}
        batch = WriteBatch()
        for (labels, at_ms), value in samples.items():
            batch.add(labels, at_ms, value)
        batch.add(self._labels(OVERWRITTEN, number, 0), self.base_ms, float(index))
        return batch, samples

    def _try(self, client: Client, batch: WriteBatch, ledger: _Ledger) -> bool:
        ledger.begun_at = time.monotonic()
        try:
            result = client.write(batch)
        except (Unavailable, Overloaded) as error:
            ledger.errors.append(error)
            return False
        finally:
            ledger.calls.append((ledger.begun_at, time.monotonic()))
            ledger.begun_at = None
        for token in result.tokens:
            ledger.tokens[token.partition] = token
        return True

    def _labels(self, name: str, writer: int, number: int) -> bytes:
        return canonical_labels({"__name__": name, "job": self._job, "instance": f"w{writer}", "n": str(number)})
