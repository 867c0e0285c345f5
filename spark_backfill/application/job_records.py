"""Job records: encodes and decodes the values in `meta`. Pure. Format: docs/formats/spark-jobs.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError

from spark_backfill.application.runs import Cause, JobRun, JobRuns, RunOutcome, RunResult
from tsdb.model.errors import ConfigMismatch, UnknownVersion
from tsdb.v1 import records_pb2

VERSION = 1


@dataclass(frozen=True, slots=True)
class Planned:
    """Schedule of a kind. cron: empty when only a request begins a run. next_due_ms: None while no run is due."""

    cron: str = ""
    next_due_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ApplicationRecord:
    """since_ms: start of the application. ended: it ended in order. plans: the plan of each kind of job."""

    since_ms: int
    ended: bool = False
    plans: Mapping[str, Planned] = field(default_factory=dict)


class _Versioned(Protocol):
    version: int


_Message = TypeVar("_Message", bound=_Versioned)


def encode_application(record: ApplicationRecord) -> bytes:
    """The bytes of a message tsdb.v1.SparkApplication."""
    schedules = [
        records_pb2.SparkSchedule(kind=kind, cron=plan.cron, next_due_ms=plan.next_due_ms)
        for kind, plan in record.plans.items()
    ]
    message = records_pb2.SparkApplication(
        version=VERSION, since_ms=record.since_ms, ended=record.ended, schedules=schedules
    )
    return message.SerializeToString(deterministic=True)


def decode_application(value: bytes) -> ApplicationRecord:
    """Raises ConfigMismatch (meta), UnknownVersion."""
    message = _decoded(records_pb2.SparkApplication, value)
    plans = {
        each.kind: Planned(each.cron, each.next_due_ms if each.HasField("next_due_ms") else None)
        for each in message.schedules
    }
    return ApplicationRecord(message.since_ms, message.ended, plans)


def encode_runs(runs: JobRuns) -> bytes:
    """The bytes of a message tsdb.v1.SparkJobRuns."""
    message = records_pb2.SparkJobRuns(
        version=VERSION,
        since_ms=runs.since_ms,
        runs=map(_run_message, runs.runs),
        last_ok=None if runs.last_ok is None else _run_message(runs.last_ok),
        failures=runs.failures,
        requests_done=runs.requests_done,
    )
    return message.SerializeToString(deterministic=True)


def decode_runs(value: bytes) -> JobRuns:
    """Raises ConfigMismatch (meta), UnknownVersion."""
    message = _decoded(records_pb2.SparkJobRuns, value)
    return JobRuns(
        message.since_ms,
        tuple(map(_run_of, message.runs)),
        _run_of(message.last_ok) if message.HasField("last_ok") else None,
        message.failures,
        message.requests_done,
    )


def encode_pause(paused: bool) -> bytes:
    """The bytes of a message tsdb.v1.SparkJobPause."""
    return records_pb2.SparkJobPause(version=VERSION, paused=paused).SerializeToString(deterministic=True)


def decode_pause(value: bytes) -> bool:
    """Raises ConfigMismatch (meta), UnknownVersion."""
    return _decoded(records_pb2.SparkJobPause, value).paused


def encode_request() -> bytes:
    """The bytes of a message tsdb.v1.SparkJobRequest."""
    return records_pb2.SparkJobRequest(version=VERSION).SerializeToString(deterministic=True)


def decode_request(value: bytes) -> None:
    """Check a request, which has no content. Raises ConfigMismatch (meta), UnknownVersion."""
    _decoded(records_pb2.SparkJobRequest, value)


def _run_message(run: JobRun) -> records_pb2.SparkJobRun:
    message = records_pb2.SparkJobRun(begin_ms=run.begin_ms, cause=run.cause.value, end_ms=run.end_ms)
    if run.outcome is not None:
        outcome = run.outcome
        message.result, message.reason, message.text = outcome.result.value, outcome.reason, outcome.text
        message.figures.update(outcome.figures)
    return message


def _run_of(message: records_pb2.SparkJobRun) -> JobRun:
    try:
        cause = Cause(message.cause)
        if not message.HasField("end_ms"):
            return JobRun(message.begin_ms, cause)
        outcome = RunOutcome(RunResult(message.result), message.reason, message.text, dict(message.figures))
    except ValueError as error:
        raise ConfigMismatch(f"a run of a job does not parse: {error}", reason="meta") from None
    return JobRun(message.begin_ms, cause, message.end_ms, outcome)


def _decoded(kind: type[_Message], value: bytes) -> _Message:
    try:
        message: _Message = kind.FromString(value)  # type: ignore[attr-defined]  # of every generated message
    except DecodeError as error:
        raise ConfigMismatch(f"the record does not parse: {error}", reason="meta") from None
    if message.version > VERSION:
        raise UnknownVersion(f"the record is of version {message.version}; this process knows {VERSION}")
    if message.version < 1:
        raise ConfigMismatch("the record has no version", reason="meta")
    return message
