"""Import run: the ticks of a job, stored in `meta`. Their offsets are the orders of the job's chunks.

A rerun, or a second process with the same job id, reads them and writes the same keys. Of several records of one job
the first in `meta` counts for all. An import without Spark also stores how many of its steps are done. Format:
docs/formats/import-run.md.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import META, METRICS, Log
from tsdb.log.records import read_to_end
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch, InvalidRequest, UnknownVersion, WrongTopic
from tsdb.model.time_set import TimeSet

VERSION = 1
KEY_PREFIX = b"import/"
STEPS_PREFIX = b"import-steps/"
JOB_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
DAY_MS = 24 * 3600 * 1000
DOWNSAMPLE = "downsample"  # The fingerprint of runs of downsample: they have no input, they read history.


@dataclass(frozen=True, slots=True)
class Tick:
    """Tick of a partition. Its offset is the order of the samples imported there. broker_ms: its broker time."""

    offset: int
    broker_ms: int


@dataclass(frozen=True, slots=True)
class ImportRun:
    """fingerprint: digest of the input and its layout, because a job id stands for one input. ticks: the tick of each
    partition.
    """

    job_id: str
    topic_id: str
    fingerprint: str
    ticks: Mapping[int, Tick]

    @property
    def orders(self) -> dict[int, int]:
        """Order of imported samples, by partition."""
        return {partition: tick.offset for partition, tick in self.ticks.items()}

    def end_ms(self, times: TimeSet) -> int:
        """Samples at or after this time are too recent: stores may have them in memory, so they go to the gateway."""
        return min(tick.broker_ms for tick in self.ticks.values()) - times.least_hold_ms - DAY_MS


def new_job_id() -> str:
    """A new random id, different from all others."""
    return uuid.uuid4().hex[:16]


def check_job_id(job_id: str) -> str:
    """Return the job id. Raises InvalidRequest (bad_job_id)."""
    if not JOB_ID.fullmatch(job_id):
        raise InvalidRequest(
            f"job id {job_id[:120]!r}: want 1 to 100 letters, digits, dots, dashes and underscores", reason="bad_job_id"
        )
    return job_id


def begin_run(log: Log, job_id: str, partitions: Collection[int], fingerprint: str, clock: Clock) -> ImportRun:
    """The first run of this job, or a new one with a tick in each of `partitions`.

    When it returns, the ticks are in the log and their offsets in `meta`. Raises WrongTopic (topic_recreated) when the
    job began on a log topic with another id, ConfigMismatch (other_import) when it began with another input, and as the
    log does.
    """
    run = find_run(log, job_id)
    if run is None:
        _record(log, ImportRun(job_id, log.topic_id(METRICS), fingerprint, _tick(log, partitions, clock)))
        run = find_run(log, job_id)
        assert run is not None, "what was appended is there"
    _check(run, log.topic_id(METRICS), fingerprint, partitions)
    return run


def find_run(log: Log, job_id: str) -> ImportRun | None:
    """The first run of a job; None when no run began. Raises UnknownVersion, ConfigMismatch (meta)."""
    prefix = KEY_PREFIX + check_job_id(job_id).encode() + b"/"
    for record in read_to_end(log, META, 0):
        if record.key is not None and record.key.startswith(prefix) and record.value is not None:
            return _decoded(job_id, record.value)
    return None


@dataclass(frozen=True, slots=True)
class StepsDone:
    """Steps of a plan whose records are all in the log. plan: digest of the plan. counts: those of the steps."""

    plan: str
    steps: int
    counts: Mapping[str, int]

    def write(self, log: Log, job_id: str) -> None:
        """Replace the record of the job; durable when it returns."""
        value = {"version": VERSION, "plan": self.plan, "steps": self.steps, "counts": dict(self.counts)}
        log.append_sync(META, 0, json.dumps(value, sort_keys=True).encode(), key=STEPS_PREFIX + job_id.encode())


def find_steps(log: Log, job_id: str, plan: str) -> StepsDone | None:
    """The finished steps of a job; None without any, or when they are of another plan."""
    key, value = STEPS_PREFIX + job_id.encode(), None
    for record in read_to_end(log, META, 0):
        if record.key == key:
            value = record.value
    if value is None:
        return None
    try:
        fields = json.loads(value)
        counts = {str(name): int(count) for name, count in fields["counts"].items()}
        found = StepsDone(str(fields["plan"]), int(fields["steps"]), counts)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # Another version wrote it: all steps run again, and write the same keys.
    return found if found.plan == plan else None


def is_import(key: bytes, value: bytes | None) -> bool:
    """Whether a record of `meta` is the begin of an import or of a DataFrame write. Runs of downsample do not count."""
    if value is None or not key.startswith(KEY_PREFIX):
        return False
    try:
        fields = json.loads(value)
    except ValueError:
        return True
    return not isinstance(fields, dict) or fields.get("fingerprint") != DOWNSAMPLE


def _tick(log: Log, partitions: Collection[int], clock: Clock) -> dict[int, Tick]:
    ticks = {}
    for partition in sorted(partitions):
        # The timestamp is used only in topics with CreateTime.
        done = log.append_sync(METRICS, partition, encode_tick(import_tick=True), timestamp_ms=clock.now_ms())
        ticks[partition] = Tick(done.offset, done.broker_ms)
    return ticks


def _record(log: Log, run: ImportRun) -> None:
    # Each record has a new key, so that compaction never removes the first one.
    key = KEY_PREFIX + f"{run.job_id}/{uuid.uuid4().hex}".encode()
    value = {
        "version": VERSION,
        "topic_id": run.topic_id,
        "fingerprint": run.fingerprint,
        "ticks": {str(partition): [tick.offset, tick.broker_ms] for partition, tick in run.ticks.items()},
    }
    log.append_sync(META, 0, json.dumps(value, sort_keys=True).encode(), key=key)


def _decoded(job_id: str, value: bytes) -> ImportRun:
    try:
        fields = json.loads(value)
        if fields["version"] != VERSION:
            raise UnknownVersion(f"import {job_id} was begun by version {fields['version']}; known: {VERSION}")
        ticks = {int(partition): Tick(int(at), int(ms)) for partition, (at, ms) in fields["ticks"].items()}
        return ImportRun(job_id, str(fields["topic_id"]), str(fields["fingerprint"]), ticks)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigMismatch(
            f"topic meta: the record of import {job_id} does not parse: {error}", reason="meta"
        ) from None


def _check(run: ImportRun, topic_id: str, fingerprint: str, partitions: Collection[int]) -> None:
    if run.topic_id != topic_id:
        raise WrongTopic(
            f"import {run.job_id} began on log {run.topic_id}, this one is {topic_id}: give it another job id",
            reason="topic_recreated",
        )
    missing = set(partitions) - set(run.ticks)
    if run.fingerprint != fingerprint or missing:
        raise ConfigMismatch(
            f"import {run.job_id} began with other files or another layout: a job id stands for one input; give this"
            " one another",
            reason="other_import",
        )
