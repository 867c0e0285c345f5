"""Resume: which work items of a rebuild are done, as records of `meta`, so that a later run builds only the others.

The first run fixes the end of the late minutes, because the log grows: all runs of a job have the same items. A task
notes its item once all its records are acknowledged. A finished job deletes its records. Format:
docs/formats/rebuild-run.md.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace

from spark_backfill.building.items import BaseItem, Item
from spark_backfill.building.plan import PartitionRange
from spark_backfill.writing.import_run import check_job_id
from tsdb.log.interface import META, METRICS, Log
from tsdb.log.records import read_to_end
from tsdb.model.errors import ConfigMismatch, UnknownVersion, WrongTopic

VERSION = 1
KEY_PREFIX = "rebuild/"
FORGET_S = 60.0


@dataclass(slots=True)
class Rebuilt:
    """Counts of the records written."""

    base_chunks: int = 0
    late_chunks: int = 0
    windows: int = 0
    bytes: int = 0

    def plus(self, other: Rebuilt) -> Rebuilt:
        """The sum of both counts."""
        return Rebuilt(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(Rebuilt)))


@dataclass(frozen=True, slots=True)
class Notes:
    """Writes the notes of a job. plan: the nonce of its plan. A task that outlives its driver may note an item after
    the job has ended; a later job with the same id has another plan, and must not take that note for its own.
    """

    job_id: str
    plan: str

    def write(self, log: Log, item: Item, counts: Rebuilt) -> None:
        """Note that all records of an item are acknowledged; durable when it returns."""
        value = {"version": VERSION, "plan": self.plan, "counts": astuple(counts)}
        log.append_sync(META, 0, json.dumps(value).encode(), key=item_key(self.job_id, item))


@dataclass(frozen=True, slots=True)
class RebuildRun:
    """ends: late_end and late_end_ms of each partition, as the first run found them. done: counts of each item that is
    done, by its key in `meta`. plans: keys of the job's plans, of which the first one counts.
    """

    job_id: str
    ends: Mapping[int, tuple[int, int]]
    done: Mapping[bytes, Rebuilt]
    plans: tuple[bytes, ...]

    @property
    def notes(self) -> Notes:
        """The value with which tasks note finished items."""
        return Notes(self.job_id, _nonce(self.plans[0]))

    def limited(self, found: Sequence[PartitionRange]) -> list[PartitionRange]:
        """The ranges up to the ends of the first run."""
        ends = self.ends
        return [replace(one, late_end=ends[one.partition][0], late_end_ms=ends[one.partition][1]) for one in found]

    def left(self, items: Iterable[Item]) -> list[Item]:
        """The items that are not done."""
        return [item for item in items if item_key(self.job_id, item) not in self.done]

    def total(self) -> Rebuilt:
        """The counts of all items that were done when the run began."""
        counts = Rebuilt()
        for one in self.done.values():
            counts = counts.plus(one)
        return counts

    def forget(self, log: Log) -> None:
        """Delete all records of the job, its plans last: without a plan, notes of items would be of another plan."""
        done = [key for key, _ in _records(log, self.job_id) if key not in self.plans]
        for keys in (done, self.plans):
            for key in keys:
                log.append(META, 0, None, key=key, on_done=_ignored)
            log.flush(FORGET_S)


def begin_rebuild(log: Log, job_id: str, fingerprint: str, found: Sequence[PartitionRange]) -> RebuildRun:
    """The job's plan and done items; a new plan when it has none. fingerprint: names the range and the packs.

    Raises WrongTopic (topic_recreated) and ConfigMismatch (other_rebuild) for a job that began on another log or with
    another range, UnknownVersion, ConfigMismatch (meta), InvalidRequest (bad_job_id), and as the log does.
    """
    run = _find(log, job_id, fingerprint)
    if run is None:
        plan = {
            "version": VERSION,
            "topic_id": log.topic_id(METRICS),
            "fingerprint": fingerprint,
            "ends": {str(one.partition): [one.late_end, one.late_end_ms] for one in found},
        }
        key = f"{_prefix(job_id)}plan/{uuid.uuid4().hex}".encode()
        log.append_sync(META, 0, json.dumps(plan, sort_keys=True).encode(), key=key)
        run = _find(log, job_id, fingerprint)
        assert run is not None, "what was appended is there"
    return run


def item_key(job_id: str, item: Item) -> bytes:
    """The key of an item's note in `meta`."""
    if isinstance(item, BaseItem):
        return f"{_prefix(job_id)}base/{item.partition}/{item.start_ms}".encode()
    return f"{_prefix(job_id)}late/{item.partition}/{item.first_offset}/{item.end_offset}".encode()


def _nonce(plan_key: bytes) -> str:
    return plan_key.rpartition(b"/")[2].decode()


def _prefix(job_id: str) -> str:
    return f"{KEY_PREFIX}{check_job_id(job_id)}/"


def _records(log: Log, job_id: str) -> list[tuple[bytes, bytes]]:
    """Key and last value of each record of the job, in the order of the keys' first records."""
    prefix, found = _prefix(job_id).encode(), dict[bytes, bytes]()
    for record in read_to_end(log, META, 0):
        if record.key is None or not record.key.startswith(prefix):
            continue
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return list(found.items())


def _find(log: Log, job_id: str, fingerprint: str) -> RebuildRun | None:
    """Of several plans the first in `meta` counts, so that runs at the same time have one plan."""
    plans: dict[bytes, dict[str, object]] = {}
    notes: dict[bytes, dict[str, object]] = {}
    for key, value in _records(log, job_id):
        fields_of = _decoded(job_id, value)
        if key.startswith(f"{_prefix(job_id)}plan/".encode()):
            plans[key] = fields_of
        else:
            notes[key] = fields_of
    if not plans:
        return None
    first, plan = next(iter(plans.items()))
    topic_id = log.topic_id(METRICS)
    if plan.get("topic_id") != topic_id:
        raise WrongTopic(
            f"rebuild {job_id} began on log {plan.get('topic_id')}, this one is {topic_id}: give it another job id",
            reason="topic_recreated",
        )
    if plan.get("fingerprint") != fingerprint:
        raise ConfigMismatch(
            f"rebuild {job_id} began with {plan.get('fingerprint')}, this run has {fingerprint}: a job id stands for"
            " one range and its packs; give this one another",
            reason="other_rebuild",
        )
    counts = {key: _counts_of(job_id, _nonce(first), note) for key, note in notes.items()}
    done = {key: one for key, one in counts.items() if one is not None}
    return RebuildRun(job_id, _ends_of(job_id, plan), done, tuple(plans))


def _decoded(job_id: str, value: bytes) -> dict[str, object]:
    try:
        decoded = json.loads(value)
        version = decoded["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(job_id, error) from None
    if version != VERSION:
        raise UnknownVersion(f"rebuild {job_id} was begun by version {version}; known: {VERSION}")
    assert isinstance(decoded, dict), "it has a version by name"
    return decoded


def _counts_of(job_id: str, plan: str, note: Mapping[str, object]) -> Rebuilt | None:
    """None for a note of another plan."""
    try:
        if note["plan"] != plan:
            return None
        return Rebuilt(*map(int, note["counts"]))  # type: ignore[call-overload]
    except (KeyError, TypeError, ValueError) as error:
        raise _broken(job_id, error) from None


def _ends_of(job_id: str, plan: Mapping[str, object]) -> dict[int, tuple[int, int]]:
    try:
        ends = plan["ends"].items()  # type: ignore[attr-defined]
        return {int(partition): (int(end), int(end_ms)) for partition, (end, end_ms) in ends}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _broken(job_id, error) from None


def _broken(job_id: str, error: Exception) -> ConfigMismatch:
    return ConfigMismatch(f"topic meta: a record of rebuild {job_id} does not parse: {error!r}", reason="meta")


def _ignored(_: object) -> None:
    """The answer of a deletion. A flush raises when the log does not answer, and a record that stays does no harm."""
