"""Frame record: the digests of the rows of each task in a finished DataFrame write, stored in `meta`.

Only job id and task number determine the keys of such a write, so other rows under the same keys would replace written
samples. A task checks its digest before it sends anything. Of several records of a job the first one counts. Format:
docs/formats/import-run.md.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spark_backfill.writing.fragments import SortedRows
from tsdb.log.interface import META, METRICS, Log
from tsdb.log.records import read_to_end
from tsdb.model.arrays import splitmix64
from tsdb.model.errors import ConfigMismatch, UnknownVersion

VERSION = 1
KEY_PREFIX = b"frame/"
NO_ROWS = ""  # Digest of a task without rows.


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """digests: by task number, only of tasks with rows. topic_id: id of the log topic that has the rows."""

    job_id: str
    topic_id: str
    digests: Mapping[int, str]

    def check(self, number: int, digest: str) -> None:
        """Raises ConfigMismatch (other_frame) when the task's digest is not the recorded one."""
        if self.digests.get(number, NO_ROWS) != digest:
            raise other_frame(self.job_id, f"task {number} has other rows")


def other_frame(job_id: str, what: str) -> ConfigMismatch:
    """The error of a write with other rows than an earlier write under the same job id."""
    return ConfigMismatch(
        f"a frame was written under job id {job_id} already, and {what}: a job id stands for one frame, partitioned in"
        " one way; give this one another",
        reason="other_frame",
    )


def rows_digest(rows: SortedRows) -> str:
    """Digest of series, times and value bits. It does not depend on the order of rows with equal times."""
    if not len(rows):
        return NO_ROWS
    mixed = splitmix64(rows.series_id)
    for column in (rows.ts_ms.view(np.uint64), rows.value.view(np.uint64)):
        mixed = splitmix64(mixed ^ column)
    return f"{len(rows)}-{int(mixed.sum(dtype=np.uint64)):016x}"


def find_frame(log: Log, job_id: str) -> FrameRecord | None:
    """Record of the first finished write of a job to this log topic; None when no write has finished.

    Raises UnknownVersion, ConfigMismatch (meta).
    """
    prefix, topic_id = KEY_PREFIX + job_id.encode() + b"/", log.topic_id(METRICS)
    for record in read_to_end(log, META, 0):
        if record.key is not None and record.key.startswith(prefix) and record.value is not None:
            found = _decoded(job_id, record.value)
            if found.topic_id == topic_id:
                return found
    return None


def finish_frame(log: Log, job_id: str, digests: Mapping[int, str]) -> None:
    """Record a write after all its tasks have ended.

    Raises ConfigMismatch (other_frame) when the job's first record has other rows: another write under this job id has
    ended since this one began, or it had tasks that this one does not have.
    """
    wrote = FrameRecord(job_id, log.topic_id(METRICS), {task: one for task, one in digests.items() if one != NO_ROWS})
    stands = find_frame(log, job_id)
    if stands is None:
        # Each record has a new key, so that compaction never removes the first one.
        key = KEY_PREFIX + f"{job_id}/{uuid.uuid4().hex}".encode()
        log.append_sync(META, 0, _encoded(wrote), key=key)
        stands = find_frame(log, job_id)
        assert stands is not None, "what was appended is there"
    if stands != wrote:
        raise other_frame(job_id, f"its tasks had other rows ({len(stands.digests)} tasks; now {len(wrote.digests)})")


def _encoded(record: FrameRecord) -> bytes:
    tasks = {str(number): digest for number, digest in record.digests.items()}
    value = {"version": VERSION, "topic_id": record.topic_id, "tasks": tasks}
    return json.dumps(value, sort_keys=True).encode()


def _decoded(job_id: str, value: bytes) -> FrameRecord:
    try:
        fields = json.loads(value)
        if fields["version"] != VERSION:
            raise UnknownVersion(f"frame {job_id} was written by version {fields['version']}; known: {VERSION}")
        tasks = {int(number): str(digest) for number, digest in fields["tasks"].items()}
        return FrameRecord(job_id, str(fields["topic_id"]), tasks)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigMismatch(
            f"topic meta: the record of frame {job_id} does not parse: {error}", reason="meta"
        ) from None
