"""Drills over one recorded log: chunkers that die at other instants each time must leave the same `chunks`."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast

from support.oracles.chunk_twin import Written
from support.servers.chunkers import chunker_options, committed, is_emitted, read_all, running, written_to
from support.servers.logs import WITHIN_S, LogFactory, wait_until
from tsdb.chunks.progress import Progress
from tsdb.codec.chunk.key import decode_key
from tsdb.log.interface import METRICS, SERIES, Log
from tsdb.log.settings import LogSettings
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import Clock
from tsdb.model.time_set import DEMO


@contextmanager
def empty_logs(
    factories: Sequence[LogFactory], partitions: int, clock: Clock, settings: LogSettings | None = None
) -> Iterator[list[Log]]:
    """An empty log of each kind, with CreateTime topics."""
    with ExitStack() as stack:
        for factory in factories:
            stack.enter_context(factory)
            factory.create(partitions, timestamp_type=CREATE_TIME)
        yield [factory.open(settings, clock) for factory in factories]


def assert_reruns_equal(
    recorded: Log, again: Sequence[Log], partitions: int, clock: Clock, *, kills: int, seed: int
) -> None:
    """recorded: a log with the chunks of a finished drill. again: empty logs with CreateTime topics; each gets a copy
    of the records, ticks included, and a separate drill."""
    emitted = [committed(recorded, partition) for partition in range(partitions)]
    want = [_emitted_by(recorded, partition, at) for partition, at in enumerate(emitted)]
    assert all(want), "the drill emitted something in every partition"
    for number, log in enumerate(again):
        for partition in range(partitions):
            _copy(recorded, log, SERIES, partition)
            offsets = _copy(recorded, log, METRICS, partition)
            # Orders are offsets; those of `series`, which is compacted, are in no chunk.
            assert offsets == list(range(len(offsets))), f"partition {partition} of the log has gaps"
        _drill(log, emitted, sum(map(len, want)), clock, kills, random.Random(seed + number))
        assert [_emitted_by(log, partition, at) for partition, at in enumerate(emitted)] == want, f"rerun {number}"


class _DyingLog:
    """Accepts a number of appends and then no more, as if the process had ended. `died` is set then."""

    def __init__(self, log: Log, appends: int) -> None:
        self._log = log
        self._left = appends
        self._lock = threading.Lock()  # Guards _left.
        self.died = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append(self, *arguments: Any, **options: Any) -> None:
        with self._lock:
            self._left -= 1
            alive = self._left >= 0
        if alive:
            self._log.append(*arguments, **options)
        else:
            self.died.set()


def _drill(log: Log, emitted: Sequence[Progress], records: int, clock: Clock, kills: int, rng: random.Random) -> None:
    """Chunkers that die, and a last one that runs until it has emitted as much. records: number of records to write."""
    # The killed chunkers together leave some work to the last one.
    appends_max = records // kills
    for _ in range(kills):
        dying = _DyingLog(log, rng.randrange(appends_max))
        with running(cast(Log, dying), chunker_options(), clock, graceful=False):
            assert dying.died.wait(WITHIN_S), "a chunker with work to do appends"
    with running(log, chunker_options(), clock) as chunker:

        def done() -> bool:
            at = {status.partition: status for status in chunker.statuses()}
            return len(at) == len(emitted) and all(
                (at[number].position or 0) >= progress.position
                and (at[number].emitted_through_ms or 0) >= progress.emitted_through_ms
                for number, progress in enumerate(emitted)
            )

        wait_until(done)


def _emitted_by(log: Log, partition: int, progress: Progress) -> Written:
    """The records of `chunks` that a commit covers."""
    written = written_to(log, partition)
    return {(key, value) for key, value in written if is_emitted(decode_key(key), progress, DEMO)}


def _copy(source: Log, target: Log, topic: str, partition: int) -> list[int]:
    """Append all records to an empty log. Returns their offsets in the recorded log."""
    answers: list[object] = []
    offsets: list[int] = []
    for batch in read_all(source, topic, partition):
        for record in map(batch.record, range(len(batch.offsets))):
            offsets.append(record.offset)
            target.append(
                topic,
                partition,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp_ms=record.broker_ms,
                on_done=answers.append,
            )
    target.flush(WITHIN_S)
    failed = [answer for answer in answers if isinstance(answer, Exception)]
    assert not failed, failed[0]
    return offsets
