"""Broker clock: compares the clock of this gateway with those of the brokers, by the broker times of its appends.

A slow gateway finds every good sample too far ahead, a fast one too old, and senders drop what is refused. So a gateway
with a wrong clock is unready and answers UNAVAILABLE (clock), and senders keep their samples for another gateway.

An append that is sent at S and acknowledged at A has a broker time between the two when the clocks agree, however long
it took. A partition disagrees when its broker time lies beyond that by more than the limit, and the gateway is wrong
when most of the partitions that it knows disagree: one broker with a wrong clock stops no gateway.

A gateway that refuses all samples appends nothing, and would learn nothing. So no sample is refused for its time
without a fresh measurement, and a wrong clock is measured again while requests or probes ask. Such a measurement is a
tick: a record without samples.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from ingest.refusals import as_seen_by_sender
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import METRICS, Appended, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge

FRESH_S = 5.0
STEP_MS = 1000.0
AGAIN_S = 1.0  # Time between two measurements of a clock that is wrong.
TICKS_MAX = 16  # Ticks of one measurement, while the clock is wrong.
LIMIT_SHARE = 2  # Half of gateway_ahead. The other half is for the clocks of senders.
REASON = "clock"

OnMeasured = Callable[[TsdbError | None], None]

_ahead = gauge(
    "tsdb_ingest_clock_ahead_seconds",
    "The clock of this gateway less that of a broker, as the last append shows; 0 while they agree within its time.",
)
_ticks = counter("tsdb_ingest_clock_ticks_total", "Records without samples, appended to compare clocks.")

logger = get_logger(__name__)


class BrokerClock:
    """All methods are thread-safe. gateway_ahead_ms: how far ahead of the clock samples are accepted."""

    def __init__(self, log: Log, partitions: int, gateway_ahead_ms: int, clock: Clock) -> None:
        self._log = log
        self._partitions = partitions
        self._limit_ms = gateway_ahead_ms // LIMIT_SHARE
        self._clock = clock
        # The last measurement: monotonic time, and wall clock less monotonic clock. It is written without the lock; a
        # race costs one measurement at most.
        self._measured_at = float("-inf")
        self._offset_ms = 0.0
        self._watches = False
        self._lock = threading.Lock()  # Guards all below; the log and callbacks are called without it.
        self._agree: set[int] = set()
        self._off: dict[int, int] = {}  # Number of ms by which the gateway's clock is ahead, by partition.
        self._wrong = False
        self._next = 0
        self._waiting: list[OnMeasured] = []
        self._open_ticks = 0
        self._again_at = float("-inf")

    def watch(self) -> None:
        """Append ticks from now on where appends of samples say too little. For a gateway that senders depend on."""
        self._watches = True

    def now_ms(self) -> int:
        """The clock of this gateway, for `measured`."""
        return self._clock.now_ms()

    def measured(self, partition: int, sent_ms: int, broker_ms: int) -> None:
        """An append that was sent at sent_ms is acknowledged now."""
        now_ms, now = self._clock.now_ms(), self._clock.monotonic()
        ahead_ms = _ahead_ms(sent_ms, now_ms, broker_ms)
        self._measured_at, self._offset_ms = now, now_ms - now * 1000
        off = abs(ahead_ms) > self._limit_ms
        if not off and not self._off and partition in self._agree:  # The usual append takes no lock.
            return
        _ahead.set(ahead_ms / 1000)
        with self._lock:
            (self._agree.discard if off else self._agree.add)(partition)
            if off:
                self._off[partition] = ahead_ms
            else:
                self._off.pop(partition, None)
            before, self._wrong = self._wrong, len(self._off) > len(self._agree)
            changed = self._wrong != before
        if changed:
            self._log_change(ahead_ms, partition)

    @property
    def fresh(self) -> bool:
        """Whether a measurement is recent enough to refuse samples for their time, and no clock has stepped since."""
        if not self._watches:
            return True
        now_ms, now = self._clock.now_ms(), self._clock.monotonic()
        return now - self._measured_at < FRESH_S and abs(now_ms - now * 1000 - self._offset_ms) < STEP_MS

    def check(self) -> None:
        """Raises Unavailable (clock) while the clock is wrong."""
        if not self._wrong:
            return
        self._measure_again()
        raise Unavailable(self._text(), reason=REASON, retry_after_s=AGAIN_S)

    def problem(self) -> tuple[str, str]:
        """Reason and message for readiness; empty while the clock is right."""
        if not self._wrong:
            return "", ""
        self._measure_again()
        return REASON, self._text()

    def measure(self, on_measured: OnMeasured) -> None:
        """Append a tick. on_measured is called once, from any thread: with None when the broker time came, else with
        the error of the log."""
        with self._lock:
            self._waiting.append(on_measured)
            if self._open_ticks:
                return
            partitions = self._choose_locked()
            self._open_ticks = len(partitions)
        for partition in partitions:
            _ticks.inc()
            answered = partial(self._answered, partition, self._clock.now_ms())
            try:
                self._log.append(METRICS, partition, encode_tick(), on_done=answered)
            except TsdbError as error:
                answered(error)

    def _measure_again(self) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if now < self._again_at:
                return
            self._again_at = now + AGAIN_S
        self.measure(lambda _error: None)

    def _choose_locked(self) -> list[int]:
        if self._wrong:
            return sorted(self._off)[:TICKS_MAX]
        self._next = (self._next + 1) % self._partitions
        return [self._next]

    def _answered(self, partition: int, sent_ms: int, answer: Appended | TsdbError) -> None:
        error = None
        if isinstance(answer, Appended):
            self.measured(partition, sent_ms, answer.broker_ms)
        else:
            error = as_seen_by_sender(answer)
        with self._lock:
            self._open_ticks -= 1
            waiting: list[OnMeasured] = []
            if not self._open_ticks:
                waiting, self._waiting = self._waiting, []
        for on_measured in waiting:
            on_measured(error)

    def _text(self) -> str:
        with self._lock:
            ahead_ms = sorted(self._off.values())[len(self._off) // 2] if self._off else 0
        place = "ahead of" if ahead_ms > 0 else "behind"
        return (
            f"the clocks of gateway and broker differ: this gateway is {abs(ahead_ms)} ms {place} most brokers; limit "
            f"is {self._limit_ms} ms: synchronise its clock, or send to another gateway meanwhile"
        )

    def _log_change(self, ahead_ms: int, partition: int) -> None:
        if self._wrong:
            logger.error("the clock of this gateway is wrong", ahead_ms=ahead_ms, limit_ms=self._limit_ms)
        else:
            logger.info("the clock of this gateway is right again", partition=partition)


def _ahead_ms(sent_ms: int, acknowledged_ms: int, broker_ms: int) -> int:
    """How far the gateway's clock is certainly ahead of the broker's, or behind it. 0 where the duration of the append
    explains it."""
    if broker_ms < sent_ms:
        return sent_ms - broker_ms
    return min(0, acknowledged_ms - broker_ms)
