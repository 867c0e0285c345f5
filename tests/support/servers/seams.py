"""A seam for tests: ten windows of one partition, of which memory holds the last and history the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from support.data.heads import SMALL_TIMES, Record, Sample, apply, new_head
from support.fakes.fake_history import FakeHistory, StagedLog
from support.oracles.head_twin import HeadTwin
from support.servers.queriers import TOPIC_ID, ServedHeads, one_store, sources_over
from tsdb.query.service import QuerierService
from tsdb.reader.read_call import ReadCalls, SelectLimits

WINDOW_MS = SMALL_TIMES.window_ms
WINDOWS = 10
STEP_MS = 50
START_MS = 10 * WINDOW_MS
END_MS = START_MS + WINDOWS * WINDOW_MS
HELD_MS = WINDOW_MS * 3 // 2  # Memory, and with it the last window that is open and part of one that is loaded.
NUMBERS = range(6)


class Seam:
    """Each series has a sample every STEP_MS; `service` is the querier over all of it, `twin` knows the answers.

    late: samples added at the end of the log, which memory alone has: nothing says that history has loaded them.
    numbers: the series, of those in NUMBERS. value: the value of the sample of a series at a time.
    """

    def __init__(
        self,
        *,
        late: Sequence[Sample] = (),
        partition: int = 0,
        numbers: Sequence[int] = NUMBERS,
        value: Callable[[int, int], float] = lambda number, ts: number + ts / 8,
        limits: SelectLimits | None = None,
        calls: ReadCalls | None = None,
    ) -> None:
        times = range(START_MS, END_MS, STEP_MS)
        records = [Record(at, ts, tuple((n, ts, value(n, ts)) for n in numbers)) for at, ts in enumerate(times)]
        if late:
            records.append(Record(len(records), END_MS, tuple(late)))
        self.twin = HeadTwin(SMALL_TIMES.ahead_ms)
        self.twin.apply(records)
        self.log = StagedLog(records, SMALL_TIMES, partition)
        self.since = next(record.offset for record in records if record.broker_ms >= END_MS - HELD_MS)
        self.coverage_ms = END_MS - HELD_MS - STEP_MS + SMALL_TIMES.ahead_ms + 1
        self.head = new_head(
            partition,
            hold_ms=2 * HELD_MS,
            since_offset=self.since,
            from_start=False,
            coverage_start_ms=self.coverage_ms,
            series=len(NUMBERS),
        )
        apply(self.head, records[self.since :])
        self.head.maintain()
        self.emitted_ms = self.log.closed_ends()[-1]
        self.history = FakeHistory()
        self.log.put_into(self.history, self.since, self.emitted_ms)
        self.history.load(TOPIC_ID, partition, self.since, self.emitted_ms)
        self.served = ServedHeads({partition: self.head})
        self.served.catch_up()
        self.sources = sources_over(one_store(self.served), self.history, window_ms=WINDOW_MS, partitions=partition + 1)
        self.service = QuerierService(self.sources, limits or SelectLimits(), calls)
