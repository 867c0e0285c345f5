"""Watch: keeps the state of a live tail over several connections: positions, and the labels of series received so far.

Every applied sample is delivered once: a new connection resumes after the last received record of each partition. A
Coverage answer fixes the start of the first connection, so a disconnect before its first message loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import malformed
from tsdb.client.arguments import arguments_of
from tsdb.client.options import Selector, wire_matchers
from tsdb.model.details import SampleDetails
from tsdb.model.errors import WrongTopic
from tsdb.model.labels import parse_labels
from tsdb.v1 import common_pb2, reader_pb2
from tsdb.wire.watch import decode_watch_answer


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Samples of one partition in the order of their application.

    record_offsets: int64, offset in the log of each sample's record. series_ids: uint64. ts_ms: int64, ms since epoch
    UTC. values: float64, of a histogram its sum. canonical: labels of every series in the batch, by series id. warning:
    says that the partition lags, so that acknowledged samples are still missing; "" without a lag. The begin and the
    end of a lag are batches, also without samples. details: start timestamps and histograms of the samples, None where
    they have none.
    """

    partition: int
    record_offsets: NDArray[np.int64]
    series_ids: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    canonical: Mapping[int, bytes]
    warning: str = ""
    details: SampleDetails | None = None

    def __len__(self) -> int:
        return len(self.ts_ms)

    @property
    def labels(self) -> dict[int, dict[str, str]]:
        """The labels of every series in the batch, by series id."""
        return {series_id: dict(parse_labels(canonical)) for series_id, canonical in self.canonical.items()}

    def samples(self) -> Iterator[tuple[dict[str, str], int, float]]:
        """(labels, ts_ms, value) of each sample, in the order of their application."""
        labels = self.labels
        columns = (self.series_ids.tolist(), self.ts_ms.tolist(), self.values.tolist())
        for series_id, ts_ms, value in zip(*columns, strict=True):
            yield labels[series_id], ts_ms, value


class WatchState:
    """State of one watch over any number of connections. Not thread-safe."""

    def __init__(
        self, selector: Selector, partitions: Sequence[int] = (), resume: Iterable[common_pb2.Token] = ()
    ) -> None:
        with arguments_of("watch"):
            self._matchers = wire_matchers(selector)
            self._partitions = [int(partition) for partition in partitions]
            self._seen = {token.partition: (token.topic_id, token.record_offset) for token in resume}
        self._labels: dict[int, bytes] = {}
        self._lagging: set[int] = set()

    def begin(self, coverage: Iterable[common_pb2.PartitionState]) -> None:
        """Start partitions without a resume point after the last applied record."""
        for state in coverage:
            if not self._partitions or state.partition in self._partitions:
                applied = state.applied_offset if state.HasField("applied_offset") else state.next_offset - 1
                self._seen.setdefault(state.partition, (state.topic_id, applied))

    @property
    def tokens(self) -> list[common_pb2.Token]:
        """Resume points of a later watch: the last received record of each partition, -1 before the first."""
        return [
            common_pb2.Token(topic_id=topic_id, partition=partition, record_offset=record_offset)
            for partition, (topic_id, record_offset) in sorted(self._seen.items())
        ]

    def request(self) -> reader_pb2.WatchRequest:
        """The request of the next connection."""
        request = reader_pb2.WatchRequest(matchers=self._matchers, partitions=self._partitions)
        getattr(request, "from").extend(self.tokens)  # `from` is a keyword of Python.
        return request

    def add(self, message: Any) -> WatchBatch | None:
        """Take one message; None for a heartbeat that says nothing new. Raises WrongTopic for a re-created log, and
        CorruptData."""
        known = self._seen.get(message.partition)
        if known is not None and known[0] != message.topic_id:
            raise WrongTopic(
                f"partition {message.partition}: the log is now topic {message.topic_id!r}, the watch began on "
                f"{known[0]!r}",
                partition=message.partition,
            )
        changed = bool(message.warning) != (message.partition in self._lagging)
        batch = self._batch(message) if message.ts_ms or changed else None
        (self._lagging.add if message.warning else self._lagging.discard)(message.partition)
        self._seen[message.partition] = (message.topic_id, message.last_record_offset)
        return batch

    def _batch(self, message: reader_pb2.WatchResponse) -> WatchBatch:
        answer = decode_watch_answer(message)
        if answer.series is not None:
            self._labels.update(zip(answer.series.series_ids.tolist(), answer.series.canonical(), strict=True))
        return WatchBatch(
            partition=answer.partition,
            record_offsets=answer.record_offsets,
            series_ids=answer.series_ids,
            ts_ms=answer.ts_ms,
            values=answer.values,
            canonical={key: self._described(key) for key in np.unique(answer.series_ids).tolist()},
            warning=answer.warning,
            details=answer.details,
        )

    def _described(self, series_id: int) -> bytes:
        if series_id not in self._labels:
            raise malformed(f"series {series_id:016x} came without its labels")
        return self._labels[series_id]
