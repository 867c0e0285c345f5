"""Progress of the chunk stage in one partition, which the group's commit encodes. Pure.

Layout of the metadata: docs/formats/chunk-record.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.codec.chunk.marker import ALWAYS_WHOLE_MS, ProgressMarker
from tsdb.codec.crc32c import crc32c
from tsdb.model.errors import CorruptData, UnknownVersion, WrongTopic

VERSION = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """Late samples below position and windows that end at or before emitted_through_ms are emitted.

    Windows that start before whole_from_ms are skipped: the log did not have all of their records.
    """

    position: int
    emitted_through_ms: int
    whole_from_ms: int = ALWAYS_WHOLE_MS

    def marker(self, topic_id: str, series_end_offset: int) -> ProgressMarker:
        """The progress marker for readers of `chunks`. series_end_offset: end of `series` after all emitted records
        were read."""
        return ProgressMarker(topic_id, self.position, self.emitted_through_ms, series_end_offset, self.whole_from_ms)


def encode_progress(progress: Progress, topic_id: str) -> str:
    """Metadata of the commit whose offset is the position. topic_id: the topic id of the log, without spaces."""
    assert " " not in topic_id, f"topic id {topic_id!r} has a space"
    text = f"{VERSION} {topic_id} {progress.emitted_through_ms} {progress.whole_from_ms}"
    return f"{text} {crc32c(text.encode()):08x}"


def decode_commit(position: int, metadata: str, topic_id: str) -> Progress:
    """The progress in a commit.

    Raises UnknownVersion (commit_version), CorruptData (commit_corrupt), WrongTopic (commit_topic) for the commit of
    another incarnation of the log.
    """
    text, _, crc = metadata.rpartition(" ")
    if f"{crc32c(text.encode()):08x}" != crc:
        raise CorruptData(
            f"commit at offset {position} has a wrong checksum: {metadata[:200]!r};"
            " `tsdb chunks resume --accept-replay` starts from the last progress marker instead",
            reason="commit_corrupt",
        )
    version, _, rest = text.partition(" ")
    if version != str(VERSION):
        raise UnknownVersion(
            f"commit at offset {position} is of version {version[:20]}; this process knows {VERSION}:"
            " a newer chunk stage made it",
            reason="commit_version",
        )
    fields = rest.split(" ")
    if len(fields) != 3:
        raise CorruptData(f"commit at offset {position} has {len(fields)} fields, not 3", reason="commit_corrupt")
    if fields[0] != topic_id:
        raise WrongTopic(
            f"commit at offset {position} is of topic id {fields[0]}; the log's is {topic_id}: it was made anew;"
            " `tsdb chunks resume --accept-replay` begins with the new one",
            reason="commit_topic",
        )
    return Progress(position, _number(fields[1], position), _number(fields[2], position))


def _number(text: str, position: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise CorruptData(f"commit at offset {position} has {text!r} for a time", reason="commit_corrupt") from None
