"""Restores compacted topics that were lost, while the log itself, `metrics`, still exists.

`chunks` and `series` go together: loaders then read both from the start, and the chunk stage goes back to the progress
of the backup, so that it writes again all that came after. One progress marker for each partition, the highest, is the
last record of `chunks`: a marker proves nothing before records that compaction kept only in a later place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from chunker.takeover import together
from tsdb.backup.checks import check_log
from tsdb.backup.files import read_groups
from tsdb.backup.folder import BackupFolder
from tsdb.backup.manifest import BackupFile, Manifest
from tsdb.backup.plan import TOPICS
from tsdb.backup.positions import check_no_member, set_positions
from tsdb.backup.tables import record_rows, topic_table
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.progress import encode_progress
from tsdb.chunks.resume import progress_of
from tsdb.codec.chunk.key import ProgressKey, encode_key
from tsdb.codec.chunk.marker import ProgressMarker, decode_progress_marker, encode_progress_marker
from tsdb.log.interface import CHUNKS, META, METRICS, SERIES, Appended, Log, LogRecord, Position
from tsdb.log.lone_member import lone_member
from tsdb.log.meta import SETTINGS_KEY, read_values
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError

FLUSH_S = 60.0
PROGRESS_KEY = encode_key(ProgressKey())

Advance = Callable[[int], None]


def topic_files(manifest: Manifest, topics: Sequence[str]) -> list[BackupFile]:
    """The files of these topics, `series` first: a chunk comes after the announcements of its series."""
    order = sorted(topics, key=lambda topic: (topic != SERIES, TOPICS.index(topic)))
    return [file for topic in order for file in manifest.of(topic_table(topic).name)]


def check_restore_topics(manifest: Manifest, log: Log, topics: Sequence[str], loader_group: str) -> None:
    """Check all but the files.

    Raises InvalidRequest (other_log, topics_not_saved, topics_together, topic_not_empty), Unavailable (group_in_use)
    while a loader or a chunk stage runs.
    """
    check_log(manifest, log)
    saved = {part.partition("/")[0] for part in manifest.plan.parts}
    missing = [topic for topic in topics if topic_table(topic).name not in saved]
    if missing:
        raise InvalidRequest(
            f"the backup was made without topics: {', '.join(missing)}; use another one", reason="topics_not_saved"
        )
    if (CHUNKS in topics) != (SERIES in topics):
        raise InvalidRequest(
            f"{CHUNKS} and {SERIES} go together, because a marker in one names offsets of the other: delete and create"
            " both, then restore both",
            reason="topics_together",
        )
    for topic in topics:
        _check_empty(manifest, log, topic)
    if CHUNKS in topics:
        check_no_member(log, loader_group, "loader")
        check_no_member(log, GROUP_ID, "chunk stage")


def restore_topics(
    folder: BackupFolder, manifest: Manifest, log: Log, topics: Sequence[str], loader_group: str, advance: Advance
) -> None:
    """Append the records, then set the groups' commits. advance: bytes of files. Raises as appends do."""
    markers: dict[int, list[ProgressMarker]] = {}
    for file in topic_files(manifest, topics):
        topic = next(topic for topic in topics if topic_table(topic).name == file.table)
        appends = _Appends(log, topic)
        for group in read_groups(folder, file):
            for partition, record in record_rows(group):
                if topic == CHUNKS and record.key == PROGRESS_KEY:
                    markers.setdefault(partition, []).append(decode_progress_marker(record.value or b""))
                elif not (topic == META and record.key == SETTINGS_KEY):
                    appends.add(partition, record)
            appends.flush()
        advance(file.bytes)
    if CHUNKS in topics:
        _set_progress(log, manifest.plan.topic_ids[METRICS], markers)
        starts = {
            (topic, number): Position(marks.low)
            for topic in (CHUNKS, SERIES)
            for number, marks in log.watermarks(topic, range(log.partitions(topic))).items()
        }
        set_positions(log, loader_group, starts)


def _set_progress(log: Log, topic_id: str, markers: dict[int, list[ProgressMarker]]) -> None:
    ends = log.watermarks(SERIES, sorted(markers))
    commits = {}
    for number, found in markers.items():
        mine = [marker for marker in found if marker.topic_id == topic_id]
        if mine:
            progress = progress_of(reduce(together, mine))
            marker = progress.marker(topic_id, ends[number].high)
            log.append_sync(CHUNKS, number, encode_progress_marker(marker), key=PROGRESS_KEY)
            commits[METRICS, number] = Position(progress.position, encode_progress(progress, topic_id))
    with lone_member(log, GROUP_ID, [METRICS]) as member:
        member.commit(commits)


def _check_empty(manifest: Manifest, log: Log, topic: str) -> None:
    if topic == META:
        # `tsdb topics create` writes the settings, and the restore keeps those.
        others = sorted(key.decode(errors="replace") for key in read_values(log) if key != SETTINGS_KEY)
        full = ", ".join(others[:3])
    else:
        marks = log.watermarks(topic, range(log.partitions(topic)))
        full = ", ".join(f"partition {number}" for number, mark in marks.items() if mark.low < mark.high)
    if full:
        raise InvalidRequest(
            f"topic {topic} is not empty ({full}): only a topic that was created anew is restored",
            reason="topic_not_empty",
        )


class _Appends:
    """Appends to one topic, many in flight."""

    def __init__(self, log: Log, topic: str) -> None:
        self._log = log
        self._topic = topic
        self._failed: list[TsdbError] = []

    def add(self, partition: int, record: LogRecord) -> None:
        """Begin one append. At the bound of waiting bytes it waits for all before it."""
        try:
            self._append(partition, record)
        except Overloaded:
            self.flush()
            self._append(partition, record)

    def flush(self) -> None:
        """Wait for all answers. Raises the first error."""
        self._log.flush(FLUSH_S)
        if self._failed:
            raise self._failed[0]

    def _append(self, partition: int, record: LogRecord) -> None:
        self._log.append(
            self._topic, partition, record.value, key=record.key, headers=record.headers, on_done=self._answered
        )

    def _answered(self, answer: Appended | TsdbError) -> None:
        if isinstance(answer, TsdbError):
            self._failed.append(answer)
