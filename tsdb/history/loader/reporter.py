"""Reporter: one thread that reads the consumer's status and the log's ends, and reports the health of each partition.

It also raises `loaded`: when woken for a progress marker, and for partitions that have completed a start from zero.
"""

from __future__ import annotations

from collections.abc import Callable

from tsdb.history.loader.health import HealthProblem, HighWatermarks, health_problem, lag_records, partition_health
from tsdb.history.loader.loaded_marks import LoadedMarks
from tsdb.log.interface import CHUNKS, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable, WrongTopic
from tsdb.ops.health import PartitionHealth
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import gauge
from tsdb.ops.periodic import Periodic
from tsdb.parallel_consumer import Status, TopicPartition

EVERY_S = 0.25
# Time between two requests for the ends. It is also that of a whole round while the consumer makes no progress.
ENDS_EVERY_S = 5.0
BLOCKED_PATIENCE_S = 5.0  # A shorter refusal does not count as an outage.
LOG_EVERY_S = 30.0

log = get_logger(__name__)

lag = gauge(
    "tsdb_loader_lag_records",
    "Records from the lowest that is not in history to the end of the partition; -1 while it is not known.",
    label=("topic", "partition"),
)
position = gauge("tsdb_loader_position", "Offset below which every record is in history.", label=("topic", "partition"))
blocked_seconds = gauge(
    "tsdb_loader_blocked_seconds", "Seconds for which history has accepted no writes; 0 while it accepts them."
)
from_zero = gauge("tsdb_loader_from_zero", "1 while the partition is loaded from zero, else 0.", label="partition")


class LoaderReporter(Periodic):
    """health: health of each partition at the last round. problem: a problem of all partitions. status: called in each
    round.
    """

    def __init__(
        self,
        log_: Log,
        status: Callable[[], Status],
        refusal: Callable[[float], TsdbError | None],
        is_spare: Callable[[], bool],
        marks: LoadedMarks,
        clock: Clock,
    ) -> None:
        super().__init__("loader-report", EVERY_S, self.look)
        self._log = log_
        self._status = status
        self._refusal = refusal
        self._is_spare = is_spare
        self._marks = marks
        self._clock = clock
        self._ends = HighWatermarks()
        self._blocked_since: float | None = None
        self._logged_at: float | None = None
        self._shown: set[TopicPartition] = set()  # Partitions with a value in the gauges.
        self._last: tuple[Status, float] | None = None  # Status of the last whole round, and its time.
        self.health: dict[int, PartitionHealth] = {}
        self.problem = HealthProblem()

    def look(self) -> None:
        """One round: update health and gauges, raise `loaded`. Nothing where nothing has changed."""
        status, now = self._status(), self._clock.monotonic()
        if self._rests(status, now):
            return
        self._last = status, now
        self._blocked_since = (self._blocked_since or now) if status.blocked_error else None
        blocked_for_s = 0.0 if self._blocked_since is None else now - self._blocked_since
        refusal = self._refusal(BLOCKED_PATIENCE_S)
        problem = health_problem(status, blocked_for_s, BLOCKED_PATIENCE_S, now, refusal, is_spare=self._is_spare())
        self._log_problem(problem, blocked_for_s, now)
        self.problem, self.health = problem, partition_health(status, self._ends, problem, now)
        self._set_gauges(status, blocked_for_s)
        self._marks.write_due(status.partitions, status.at)
        # Done last, because it may wait for a log that does not answer, and known facts must show before that.
        self._refresh_ends(status, now)

    def _rests(self, status: Status, now: float) -> bool:
        """Whether a round would do what the last one did: the consumer stands still, and nothing is wrong."""
        if self._last is None or self.problem.reason or self._marks.is_writing:
            return False
        last, at = self._last
        same = status is last or (status.partitions == last.partitions and bool(status.partitions))
        wrong = status.blocked_error or status.stalls or status.commit_error or self._refusal(BLOCKED_PATIENCE_S)
        return same and not wrong and not last.blocked_error and now - at < ENDS_EVERY_S

    def _refresh_ends(self, status: Status, now: float) -> None:
        places = set(status.partitions)
        fresh = self._ends.at is not None and now - self._ends.at < ENDS_EVERY_S and places <= set(self._ends.high)
        if fresh:
            return
        try:
            high = {}
            for topic in {topic for topic, _ in places}:
                highs = self._log.high_watermarks(topic, sorted(number for name, number in places if name == topic))
                high.update({(topic, number): end for number, end in highs.items()})
            self._ends = HighWatermarks(high, now)
        except (Unavailable, WrongTopic) as error:
            log.debug("ends of the log not to be had", reason=error.reason, error=error.message)

    def _log_problem(self, problem: HealthProblem, blocked_for_s: float, now: float) -> None:
        if not problem.reason:
            if self._logged_at is not None:
                log.info("loader goes on")
            self._logged_at = None
        elif self._logged_at is None or now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            log.warning(
                "loader does not go on",
                reason=problem.reason,
                message=problem.message,
                blocked_s=round(blocked_for_s, 1),
            )

    def _set_gauges(self, status: Status, blocked_for_s: float) -> None:
        blocked_seconds.set(blocked_for_s)
        for (topic, number), part in status.partitions.items():
            behind = lag_records((topic, number), part, self._ends, self._clock.monotonic())
            lag.labels(topic, str(number)).set(-1 if behind is None else behind)
            position.labels(topic, str(number)).set(part.position)
            from_zero.labels(str(number)).set(self._marks.from_zero(number))
        for topic, number in self._shown - set(status.partitions):
            # Another loader has the partition now, and two values for one partition would add up.
            lag.remove(topic, str(number))
            position.remove(topic, str(number))
            if topic == CHUNKS:
                from_zero.remove(str(number))
        self._shown = set(status.partitions)
