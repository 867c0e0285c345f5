"""Writers that append all the time, each with its own numbered values in turn, and a check of the answers."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from support.servers.logs import WITHIN_S, read_to_end, records_of
from tsdb.log.interface import METRICS, Appended, Log
from tsdb.model.errors import Overloaded, TsdbError, Unavailable

WRITERS = 8
REST_S = 0.005  # Pause after an acknowledged append. Without it writers and brokers take the cores of other tests.


@dataclass(slots=True)
class _Seen:
    """Answers to one writer: (number, offset) in the order of arrival, and the reasons of failures."""

    acked: list[tuple[int, int]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)


class LogWriters:
    """WRITERS threads over one log and partition. Each sends a number until it is acknowledged, then the next.

    So a retry follows a failed append at once, as a gateway's clients do; everything else than Unavailable or
    Overloaded ends the test.
    """

    def __init__(self, log: Log, partition: int = 0) -> None:
        self._log = log
        self._partition = partition
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # Guards what is below.
        self._seen = [_Seen() for _ in range(WRITERS)]
        self._in_flight = 0
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WRITERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def in_flight(self) -> int:
        """Appends not answered yet."""
        with self._lock:
            return self._in_flight

    @property
    def acked(self) -> int:
        """Acknowledged appends so far."""
        with self._lock:
            return sum(len(seen.acked) for seen in self._seen)

    @property
    def failures(self) -> Counter[str]:
        """Failed appends so far, by reason."""
        with self._lock:
            return sum((seen.failures for seen in self._seen), Counter())

    def stop(self) -> None:
        """Let each writer finish its append. Raises the exception of a failed writer."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(WITHIN_S)
            assert not thread.is_alive(), "an append was never answered"
        if self._errors:
            raise self._errors[0]

    def judge(self, log: Log) -> None:
        """Check that every acknowledged number is at its offset, and that no older number follows it."""
        with log.reader({(METRICS, self._partition): 0}) as reader:
            records = records_of(read_to_end(reader))
        stored = {record.offset: record.value for record in records}
        copies: dict[tuple[int, int], int] = {}
        for record in records:
            writer, number = map(int, (record.value or b"").split(b":"))
            copies[writer, number] = record.offset
        late: dict[int, list[str]] = defaultdict(list)
        for writer, seen in enumerate(self._seen):
            for number, offset in seen.acked:
                assert stored.get(offset) == b"%d:%d" % (writer, number), f"false OK: {writer}:{number} at {offset}"
            for (number, _), (_, next_offset) in zip(seen.acked, seen.acked[1:], strict=False):
                last = copies[writer, number]
                if last > next_offset:
                    late[writer].append(f"{number} again at {last}, after its successor at {next_offset}")
        assert not late, f"a retry landed late: {dict(late)}"

    def _run(self, writer: int) -> None:
        try:
            number = 0
            while not self._stopping.is_set():
                if self._send(writer, number):
                    number += 1
                    self._stopping.wait(REST_S)
        except BaseException as error:
            self._errors.append(error)

    def _send(self, writer: int, number: int) -> bool:
        answers: list[Appended | TsdbError] = []
        answered = threading.Event()

        def on_done(answer: Appended | TsdbError) -> None:
            answers.append(answer)
            answered.set()

        with self._lock:
            self._in_flight += 1
        try:
            self._log.append(METRICS, self._partition, b"%d:%d" % (writer, number), on_done=on_done)
            assert answered.wait(WITHIN_S), "an append was never answered"
        except (Unavailable, Overloaded) as error:
            answers.append(error)
        (answer,) = answers
        with self._lock:
            self._in_flight -= 1
            if isinstance(answer, Appended):
                self._seen[writer].acked.append((number, answer.offset))
                return True
            assert isinstance(answer, Unavailable | Overloaded), answer
            self._seen[writer].failures[answer.reason] += 1
            return False
