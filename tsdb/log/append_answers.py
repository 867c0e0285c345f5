"""Answers to appends, alike in both logs: the metrics of them, and the wait for the answer to one append."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue

from tsdb.log.interface import Appended, OnDone
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.metrics import counter

REASONS = (
    "corrupt_data",
    "disk_error",
    "disk_full",
    "internal",
    "invalid_record",
    "invalid_timestamp",
    "log_closed",
    "log_error",
    "log_locked",
    "log_unauthorized",
    "log_unavailable",
    "not_enough_replicas",
    "offset_unknown",
    "producer_fenced",
    "queue_full",
    "record_too_large",
    "topic_deleted",
    "topic_recreated",
    "unknown_partition",
    "unknown_topic",
)

appends_total = counter("tsdb_log_appends_total", "Records that the log acknowledged.")
append_failures_total = counter(
    "tsdb_log_append_failures_total",
    "Records that the log refused or did not acknowledge, by reason.",
    label="reason",
    values=REASONS,
)


def wait_for_append(append: Callable[[OnDone], None], timeout_s: float) -> Appended:
    """Append one record and wait for its answer. Raises an error answer, or Unavailable (timeout): the record may then
    still reach the log."""
    answers: SimpleQueue[Appended | TsdbError] = SimpleQueue()
    append(answers.put)
    try:
        answer = answers.get(timeout=timeout_s)
    except Empty:
        raise Unavailable(f"the append was not answered within {timeout_s:g} s", reason="timeout") from None
    if isinstance(answer, TsdbError):
        raise answer
    return answer
