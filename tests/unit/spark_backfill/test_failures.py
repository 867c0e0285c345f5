"""Spark's report of a failed task becomes the error that the task raised."""

from __future__ import annotations

import pytest

from spark_backfill.failures import error_of, quoted_errors
from tsdb.model.errors import CorruptData, InvalidRequest, TsdbError, Unavailable, WrongTopic

TRACE = """Job aborted due to stage failure: Task 3 in stage 1.0 failed 4 times, most recent failure:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "x.py", line 1, in read
{line}

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:500)
"""


@pytest.mark.parametrize(
    ("line", "kind", "reason", "message"),
    [
        ("tsdb.model.errors.Unavailable: [timeout] no answer in 10 s", Unavailable, "timeout", "no answer in 10 s"),
        ("tsdb.model.errors.CorruptData: chunk is bad", CorruptData, "corrupt_data", "chunk is bad"),
        (
            "tsdb.model.errors.WrongTopic: other id\n\nThe above exception was the direct cause of the following"
            " exception:\n\ntsdb.model.errors.WrongTopic: [checkpoint_topic] other id",
            WrongTopic,
            "checkpoint_topic",
            "other id",
        ),
        ("tsdb.model.errors.annotations: odd", TsdbError, "internal", "odd"),
        ("ValueError: x < 0", TsdbError, "spark_failed", "ValueError: x < 0"),
    ],
)
def test_a_tasks_error_is_found_in_the_text(line: str, kind: type[TsdbError], reason: str, message: str) -> None:
    error = error_of(TRACE.format(line=line))
    assert (type(error), error.reason, error.message) == (kind, reason, message)


def test_a_failure_of_spark_itself_is_quoted() -> None:
    error = error_of("no space left")
    assert (error.reason, error.message) == ("spark_failed", "no space left")


def test_a_python_process_that_connects_late_is_worth_another_start() -> None:
    error = error_of("SparkException: Python worker failed to connect back.")
    assert isinstance(error, Unavailable)
    assert (error.reason, "begin again" in error.message) == ("worker_late", True)


def test_an_error_within_a_task_carries_its_reason_in_the_text() -> None:
    with pytest.raises(InvalidRequest) as raised, quoted_errors():
        raise InvalidRequest("too late", reason="too_recent")
    assert str(raised.value) == "[too_recent] too late"
