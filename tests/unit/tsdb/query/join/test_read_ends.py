"""A read of history ends with its caller and with the server's time, wherever in history it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from support.data.long_values import SLOW_PATTERN, long_labels
from support.fakes.fake_history import FakeHistory
from support.servers.queriers import TOPIC_ID, Context, one_store, querier_over
from support.servers.seams import END_MS, START_MS, WINDOW_MS, Seam
from tsdb.history.interface import ChunkRow, Loaded, SeriesIndexRows, WantedSeries, WindowRange
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.window import index_epoch
from tsdb.query.history.index import READERS, Choice, HistoryIndex
from tsdb.query.service import QuerierService
from tsdb.reader.read_call import ReadCalls
from tsdb.v1 import common_pb2, reader_pb2

TIMEOUT_S = 60.0
WITHIN_S = 60.0
METRICS = 3  # Reads of a Seam. They run concurrently, so all may be under way when a read ends.
STEPS = (*range(1, 10), 20, 40)  # All calls of history, and some pieces of chunks.
SLOW_SERIES = 300  # 3 s of matching, with a check every 16 series.
CHECKS = 20  # A read makes 15 checks beside the checks of its matching.


class WatchedHistory(FakeHistory):
    """Runs `at_step` in the middle of each read: with each call, and with each piece of chunks.

    steps: how many there were. closed: how many iterators of chunks were closed before their end.
    """

    def __init__(self, of: FakeHistory, at_step: Callable[[int], None]) -> None:
        super().__init__()
        self.rows, self.loaded_by, self.announced = of.rows, of.loaded_by, of.announced
        self.steps = self.closed = 0
        self._at_step = at_step

    def read(
        self, pack_ids: Sequence[int], windows: WindowRange, wanted: WantedSeries | None = None
    ) -> Iterator[list[ChunkRow]]:
        try:
            for rows in super().read(pack_ids, windows):
                self._step()
                yield rows
        except GeneratorExit:
            self.closed += 1
            raise

    def _called(self, name: str) -> None:
        super()._called(name)
        self._step()

    def _step(self) -> None:
        self.steps += 1
        self._at_step(self.steps)


Read = Callable[[QuerierService, common_pb2.Matcher, Any], object]
TEST = common_pb2.Matcher(name="job", value="test")
SLOW = common_pb2.Matcher(type=common_pb2.Matcher.REGEX, name="long", value=SLOW_PATTERN)


def select(encoding: reader_pb2.Encoding.ValueType) -> Read:
    return lambda service, matcher, caller: list(
        service.Select(
            reader_pb2.SelectRequest(matchers=[matcher], start_ms=START_MS, end_ms=END_MS, encoding=encoding), caller
        )
    )


READS: dict[str, Read] = {
    "raw": select(reader_pb2.RAW),
    "columns": select(reader_pb2.COLUMNS),
    "series": lambda service, matcher, caller: list(
        service.Series(reader_pb2.SeriesRequest(matchers=[matcher], start_ms=START_MS, end_ms=END_MS), caller)
    ),
    "label names": lambda service, matcher, caller: service.LabelNames(
        reader_pb2.LabelNamesRequest(matchers=[matcher], start_ms=START_MS, end_ms=END_MS), caller
    ),
    "label values": lambda service, matcher, caller: service.LabelValues(
        reader_pb2.LabelValuesRequest(matchers=[matcher], start_ms=START_MS, end_ms=END_MS, name="instance"), caller
    ),
}


class EndingContext(Context):
    """A caller, and the clock of its server: a test ends either."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.checks = 0
        self._at = 0
        self._end: Callable[[EndingContext], None] | None = None

    def at_check(self, number: int, end: Callable[[EndingContext], None]) -> None:
        """Call `end` at this check of the caller."""
        self._at, self._end = number, end

    def is_active(self) -> bool:
        self.checks += 1
        if self._end is not None and self.checks == self._at:
            self._end(self)
        return super().is_active()

    def pass_deadline(self) -> None:
        self.remaining_s = 0.0

    def pass_servers_time(self) -> None:
        self.clock.advance(int(TIMEOUT_S * 1000) + 1)


ENDINGS: dict[str, tuple[Callable[[EndingContext], None], type[TsdbError], str]] = {
    "the caller leaves": (EndingContext.leave, Unavailable, "cancelled"),
    "the caller's deadline": (EndingContext.pass_deadline, Unavailable, "cancelled"),
    "the server's time": (EndingContext.pass_servers_time, Overloaded, "read_timeout"),
}


def run(history: FakeHistory, seam: Seam, read: str, caller: EndingContext, matcher: common_pb2.Matcher = TEST) -> int:
    """Execute one read by a new querier over the seam's store and this history. Returns the steps of a
    WatchedHistory.
    """
    calls = ReadCalls(TIMEOUT_S, monotonic=caller.clock.monotonic)
    READS[read](querier_over(one_store(seam.served), history, window_ms=WINDOW_MS, calls=calls), matcher, caller)
    return history.steps if isinstance(history, WatchedHistory) else 0


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("read", READS)
def test_a_read_of_history_ends_soon_wherever_its_caller_or_its_time_ends(read: str, ending: str) -> None:
    end, kind, reason = ENDINGS[ending]
    seam = Seam()
    steps = run(WatchedHistory(seam.history, lambda step: None), seam, read, EndingContext())
    assert steps > (50 if read in ("raw", "columns") else 5)
    for last in (step for step in STEPS if step < steps):
        ended = EndingContext()

        def at_step(step: int, last: int = last, ended: EndingContext = ended) -> None:
            if step == last:
                end(ended)

        history = WatchedHistory(seam.history, at_step)
        with pytest.raises(kind) as caught:
            run(history, seam, read, ended)
        assert caught.value.reason == reason, f"ended in step {last}"
        assert history.steps <= last + METRICS
        assert history.closed == history.calls.count("read"), "an iterator of chunks is not left open"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "ending"), [*((read, "the caller leaves") for read in READS), ("raw", "the server's time")]
)
def test_a_regular_expression_over_the_labels_of_history_ends_with_the_read(read: str, ending: str) -> None:
    end, kind, reason = ENDINGS[ending]
    seam, ended = Seam(), EndingContext()
    for number in range(SLOW_SERIES):
        canonical = canonical_labels(long_labels(number))
        seam.history.announce(canonical, series_id(canonical), index_epoch(series_id(canonical), START_MS), 0)
    ended.at_check(CHECKS, end)
    with pytest.raises(kind) as caught:
        run(seam.history, seam, read, ended, SLOW)
    assert caught.value.reason == reason
    assert ended.checks <= CHECKS + 1


def test_reads_of_many_metrics_stop_when_the_caller_has_gone() -> None:
    """The first metric is read while all others wait. Only the reads that had begun are made."""
    history, held, left = HeldSeries(), threading.Event(), threading.Event()
    history.held = held
    for number in range(10 * READERS):
        labels = canonical_labels({"__name__": f"m_{number:03}", "job": "j", "instance": "i"})
        history.announce(labels, series_id(labels), index_epoch(series_id(labels), START_MS), 0)

    def check_going() -> None:
        if history.calls.count("series"):
            left.set()
            raise Unavailable("gone", reason="cancelled")

    loaded = {0: Loaded(TOPIC_ID, 0, 100, 0)}
    try:
        with pytest.raises(Unavailable):
            HistoryIndex(history).find(Choice(()), START_MS, END_MS, loaded, {0: 0}, check_going)
        assert left.is_set()
    finally:
        held.set()
    assert history.calls.count("series") <= READERS + 1


class HeldSeries(FakeHistory):
    """Answers for the first metric at once, and for the others when `held` is set."""

    held: threading.Event

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        rows = super().series(epoch, name)
        if name != b"m_000":
            assert self.held.wait(WITHIN_S)
        return rows
