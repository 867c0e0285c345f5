"""Noted run: the plan and the finished work items of a job, as records of `meta`, so that a later run of the same job
id does only the rest.

The first run writes the plan, which fixes what must not differ between the runs of a job. A task notes its item once
the item's records are acknowledged. A finished job deletes its records. Formats: docs/formats/rebuild-run.md,
docs/formats/migration-run.md.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from spark_backfill.writing.import_run import check_job_id
from tsdb.log.interface import META, METRICS, Log
from tsdb.log.records import read_to_end
from tsdb.model.errors import ConfigMismatch, UnknownVersion, WrongTopic

VERSION = 1
FORGET_S = 60.0

Counts = tuple[int, ...]
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class Notes:
    """Writes the notes of a job. kind: the first word of its keys. plan: the nonce of its plan.

    A task that outlives its driver may note an item after the job has ended; a later job with the same id has another
    plan, and must not take that note for its own.
    """

    kind: str
    job_id: str
    plan: str

    def write(self, log: Log, item: str, counts: Sequence[int]) -> None:
        """Note that all records of an item are acknowledged; durable when it returns."""
        value = {"version": VERSION, "plan": self.plan, "counts": list(counts)}
        log.append_sync(META, 0, json.dumps(value).encode(), key=f"{self.kind}/{self.job_id}/{item}".encode())


@dataclass(frozen=True, slots=True)
class NotedRun:
    """body: the job's own fields of the plan. done: counts of each finished item, by the item's part of its key. plans:
    keys of the job's plans, of which the first one counts.
    """

    kind: str
    job_id: str
    body: Mapping[str, object]
    done: Mapping[str, Counts]
    plans: tuple[bytes, ...]

    @property
    def notes(self) -> Notes:
        """The value with which tasks note finished items."""
        return Notes(self.kind, self.job_id, _nonce(self.plans[0]))

    def parsed(self, read: Callable[[Mapping[str, object]], Parsed]) -> Parsed:
        """A value that `read` makes of the body. Raises ConfigMismatch (meta) where it cannot."""
        try:
            return read(self.body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _broken(self.kind, self.job_id, error) from None

    def forget(self, log: Log) -> None:
        """Delete all records of the job, its plans last: without a plan, notes of items would be of another plan."""
        self.forget_items(log)
        _delete(log, self.plans)

    def forget_items(self, log: Log) -> None:
        """Delete the notes of items: a later run does all of them again, by the same plan."""
        _delete(log, [key for key, _ in _records(log, self.kind, self.job_id) if key not in self.plans])


def begin_noted(
    log: Log, kind: str, job_id: str, fingerprint: str, plan: Callable[[], Mapping[str, object]]
) -> NotedRun:
    """The job's plan and its finished items. plan: makes the body of a new plan, for a job that has none. fingerprint:
    text that names the work: the runs of a job id must have the same.

    Raises WrongTopic (topic_recreated) and ConfigMismatch (other_KIND) for a job that began on another log or with
    another fingerprint, UnknownVersion, ConfigMismatch (meta), InvalidRequest (bad_job_id), and as the log does.
    """
    run = _find(log, kind, job_id, fingerprint)
    if run is None:
        head = {"version": VERSION, "topic_id": log.topic_id(METRICS), "fingerprint": fingerprint}
        key = f"{_prefix(kind, job_id)}plan/{uuid.uuid4().hex}".encode()
        log.append_sync(META, 0, json.dumps({**head, **plan()}, sort_keys=True).encode(), key=key)
        run = _find(log, kind, job_id, fingerprint)
        assert run is not None, "what was appended is there"
    return run


def _nonce(plan_key: bytes) -> str:
    return plan_key.rpartition(b"/")[2].decode()


def _prefix(kind: str, job_id: str) -> str:
    return f"{kind}/{check_job_id(job_id)}/"


def _records(log: Log, kind: str, job_id: str) -> list[tuple[bytes, bytes]]:
    """Key and last value of each record of the job, in the order of the keys' first records."""
    prefix, found = _prefix(kind, job_id).encode(), dict[bytes, bytes]()
    for record in read_to_end(log, META, 0):
        if record.key is None or not record.key.startswith(prefix):
            continue
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return list(found.items())


def _find(log: Log, kind: str, job_id: str, fingerprint: str) -> NotedRun | None:
    """Of several plans the first in `meta` counts, so that runs at the same time have one plan."""
    prefix = _prefix(kind, job_id)
    plans: dict[bytes, dict[str, object]] = {}
    notes: dict[str, dict[str, object]] = {}
    for key, value in _records(log, kind, job_id):
        fields = _decoded(kind, job_id, value)
        item = key.decode(errors="replace").removeprefix(prefix)
        if item.startswith("plan/"):
            plans[key] = fields
        else:
            notes[item] = fields
    if not plans:
        return None
    first, plan = next(iter(plans.items()))
    topic_id = log.topic_id(METRICS)
    if plan.get("topic_id") != topic_id:
        raise WrongTopic(
            f"{kind} {job_id} began on log {plan.get('topic_id')}, this one is {topic_id}: give it another job id",
            reason="topic_recreated",
        )
    if plan.get("fingerprint") != fingerprint:
        raise ConfigMismatch(
            f"{kind} {job_id} began with {plan.get('fingerprint')}, this run has {fingerprint}: a job id stands for one"
            " work; give this one another",
            reason=f"other_{kind}",
        )
    counts = {item: _counts_of(kind, job_id, _nonce(first), note) for item, note in notes.items()}
    done = {item: one for item, one in counts.items() if one is not None}
    return NotedRun(kind, job_id, plan, done, tuple(plans))


def _decoded(kind: str, job_id: str, value: bytes) -> dict[str, object]:
    try:
        decoded = json.loads(value)
        version = decoded["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(kind, job_id, error) from None
    if version != VERSION:
        raise UnknownVersion(f"{kind} {job_id} was begun by version {version}; known: {VERSION}")
    assert isinstance(decoded, dict), "it has a version by name"
    return decoded


def _counts_of(kind: str, job_id: str, plan: str, note: Mapping[str, object]) -> Counts | None:
    """None for a note of another plan."""
    try:
        if note["plan"] != plan:
            return None
        return tuple(map(int, note["counts"]))  # type: ignore[call-overload]
    except (KeyError, TypeError, ValueError) as error:
        raise _broken(kind, job_id, error) from None


def _broken(kind: str, job_id: str, error: Exception) -> ConfigMismatch:
    return ConfigMismatch(f"topic meta: a record of {kind} {job_id} does not parse: {error!r}", reason="meta")


def _delete(log: Log, keys: Sequence[bytes]) -> None:
    for key in keys:
        log.append(META, 0, None, key=key, on_done=_ignored)
    log.flush(FORGET_S)


def _ignored(_: object) -> None:
    """The answer of a deletion. A flush raises when the log does not answer, and a record that stays does no harm."""
