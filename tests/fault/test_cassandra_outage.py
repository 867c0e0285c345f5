"""Cassandra stopped, killed, hung, moved or with a full disk loses no acknowledged row, and every refusal is
retryable.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from stack.cassandra import CassandraNode
from support.servers.histories import HistoryFactory, row
from tsdb.history import statement_metrics as metrics
from tsdb.history.cassandra.store import CassandraStore
from tsdb.history.interface import ChunkRow, ChunkStore, WindowRange
from tsdb.history.rows import MONTH_MS
from tsdb.history.settings import HistorySettings, Hosts
from tsdb.history.writes import write_sync
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.lifecycle import Deadline

WITHIN_S = 120.0
QUEUED, UNTIL_FULL_S = 100, 0.25  # Writes of 500 kB that are queued at once, and the wait after each further write.
IMPATIENT = HistorySettings(write_timeout_s=1.0, read_timeout_s=1.0)
WRITERS = 8


@pytest.fixture
def factory(node: CassandraNode) -> Iterator[HistoryFactory]:
    with HistoryFactory(f"cassandra://{node.host}:{node.port}/faults") as factory:
        factory.create()
        yield factory


class Load:
    """Threads that write rows one after another, each until it is acknowledged. A context manager."""

    def __init__(self, store: ChunkStore) -> None:
        self._store = store
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WRITERS)]
        self.acknowledged: list[list[ChunkRow]] = [[] for _ in range(WRITERS)]
        self.refused: Counter[str] = Counter()
        self.surprises: list[BaseException] = []

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def wait_for(self, count: int) -> None:
        """Wait until `count` more rows are acknowledged."""
        target, give_up_at = self.count + count, time.monotonic() + WITHIN_S
        while self.count < target:
            assert time.monotonic() < give_up_at, f"{self.count} of {target}; refused {self.refused}"
            time.sleep(0.02)  # Interval of checks. The loop's condition is the claim.

    def wait_for_refusals(self, count: int) -> None:
        """Wait until `count` writes were refused."""
        give_up_at = time.monotonic() + WITHIN_S
        while self.refused.total() < count:
            assert time.monotonic() < give_up_at, f"refused {self.refused}"
            time.sleep(0.02)

    def _run(self, number: int) -> None:
        window = 0
        while not self._stopping.is_set():
            one = row(number, window % 1000, part=window // 1000, value=b"%d %d" % (number, window) * 500)
            if self._wrote(one):
                self.acknowledged[number].append(one)
                window += 1

    def _wrote(self, one: ChunkRow) -> bool:
        try:
            write_sync(lambda done: self._store.write(one.key, one.value, done), WITHIN_S)
        except (Unavailable, Overloaded) as error:
            self.refused[error.reason] += 1
            self._stopping.wait(0.05)
            return False
        except BaseException as error:
            self.surprises.append(error)
            self._stopping.set()
            return False
        return True

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(WITHIN_S)


def assert_all_there(store: ChunkStore, load: Load) -> None:
    assert load.surprises == []
    assert load.count
    for number, rows in enumerate(load.acknowledged):
        found = [one for piece in store.read([number], WindowRange(0, 6 * MONTH_MS)) for one in piece]
        # One row more than acknowledged may exist: its answer was lost, or the write was in flight at the end.
        assert {one.key for one in rows} <= {one.key for one in found}
        values = {one.key: one.value for one in found}
        assert all(values[one.key] == one.value for one in rows)


def test_stopped_and_started_again_nothing_acknowledged_is_lost(node: CassandraNode, factory: HistoryFactory) -> None:
    store = factory.open(IMPATIENT)
    with Load(store) as load:
        load.wait_for(200)
        node.process.stop()
        load.wait_for_refusals(20)
        with pytest.raises(Unavailable):
            list(store.read([0], WindowRange(0, MONTH_MS)))
        node.process.start()
        node.wait_ready()
        load.wait_for(200)
    assert_all_there(store, load)


def test_hung_and_going_on_nothing_acknowledged_is_lost(node: CassandraNode, factory: HistoryFactory) -> None:
    store = factory.open(IMPATIENT)
    with Load(store) as load:
        load.wait_for(200)
        node.process.signal(signal.SIGSTOP)
        try:
            load.wait_for_refusals(2 * WRITERS)
            with pytest.raises((Unavailable, Overloaded)) as late:
                list(store.read([0], WindowRange(0, MONTH_MS)))
            assert late.value.retry_after_s is not None
        finally:
            node.process.signal(signal.SIGCONT)
        load.wait_for(200)
    assert set(load.refused) <= {"timeout", "unavailable", "connection_busy", "inflight_full"}
    assert_all_there(store, load)


def test_more_bytes_than_a_connection_takes_wait_and_all_arrive(node: CassandraNode, factory: HistoryFactory) -> None:
    store = factory.open(HistorySettings(inflight_bytes_max=256 << 20, write_timeout_s=60.0))
    retried, answers = metrics.busy_retries_total._value.get(), _Collected()
    rows = [row(99, window, value=bytes([window % 251]) * 500_000) for window in range(120)]
    queued = threading.Event()

    def queue_most(_: TsdbError | None) -> None:
        """On the thread that sends, which therefore finds many messages and sends until the socket is full."""
        node.process.signal(signal.SIGSTOP)
        for one in rows[:QUEUED]:
            store.write(one.key, one.value, answers)
        queued.set()

    try:
        store.write(rows[0].key, rows[0].value, queue_most)
        assert queued.wait(WITHIN_S)
        for one in rows[QUEUED:]:
            store.write(one.key, one.value, answers)
            pause = Deadline.after(UNTIL_FULL_S)
            while metrics.busy_retries_total._value.get() == retried and not pause.expired:
                time.sleep(0.001)
        assert metrics.busy_retries_total._value.get() > retried
    finally:
        node.process.signal(signal.SIGCONT)
    answers.wait_until(lambda: len(answers.all) == len(rows))
    assert answers.all == [None] * len(rows)
    found = [one for piece in store.read([99], WindowRange(0, MONTH_MS)) for one in piece]
    assert found == rows


def test_a_history_that_is_not_there_yet_is_used_once_it_is(node: CassandraNode, factory: HistoryFactory) -> None:
    node.process.kill()
    store = factory.open(IMPATIENT)
    for _ in range(3):
        with pytest.raises(Unavailable) as away:
            store.loaded("topic")
        assert away.value.retry_after_s is not None
        with pytest.raises(Unavailable):
            store.write(row(1, 0).key, b"", lambda error: None)
    node.process.start()
    node.wait_ready()
    with Load(store) as load:
        load.wait_for(50)
    assert_all_there(store, load)


NAME = "history.example"
MOVED_WITHIN_S = 60.0


@contextmanager
def moving(node: CassandraNode, factory: HistoryFactory) -> Iterator[tuple[CassandraStore, Callable[[str], None]]]:
    """A store that knows the node by a name alone, and a function that moves the node and its name to an address. The
    node stays where it was moved to."""
    names = {NAME: [node.host]}
    hosts = replace(Hosts.parse(factory.url), names=(NAME,))

    def move(host: str) -> None:
        node.process.stop()  # As a pod that is gone: its name leads to the old address until another one has it.
        node.move(host)
        names[NAME] = [host]

    with CassandraStore(hosts, IMPATIENT, resolve=names.__getitem__) as store:
        yield store, move


def test_a_cluster_that_comes_back_with_other_addresses_is_used_again(
    node: CassandraNode, factory: HistoryFactory
) -> None:
    with moving(node, factory) as (store, move):
        with Load(store) as load:
            load.wait_for(100)
            move("127.0.0.2")
            moved_at = time.monotonic()
            load.wait_for(100)
            took_s = time.monotonic() - moved_at
        print(f"writes go on {took_s:.1f} s after the move")
        assert_all_there(store, load)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_cluster_that_moves_for_10_minutes_is_used_within_a_minute_each_time(
    node: CassandraNode, factory: HistoryFactory
) -> None:
    end_at, moves = time.monotonic() + 600.0, 0
    with moving(node, factory) as (store, move):
        with Load(store) as load:
            while time.monotonic() < end_at:
                load.wait_for(100)
                moves += 1
                move(f"127.0.0.{2 + moves % 3}")
                moved_at = time.monotonic()
                load.wait_for(100)
                assert time.monotonic() - moved_at < MOVED_WITHIN_S
        print(f"{moves} moves")
        assert_all_there(store, load)


class _Collected:
    """Answers of many writes."""

    def __init__(self) -> None:
        self.all: list[TsdbError | None] = []

    def __call__(self, error: TsdbError | None) -> None:
        self.all.append(error)

    def wait_until(self, done: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + WITHIN_S
        while not done():
            assert time.monotonic() < give_up_at, f"{len(self.all)} answers"
            time.sleep(0.02)
