"""The registry in virtual time: copies are acknowledged once durable, and end once finished; orphans expire once, and a
clean shutdown leaves none.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from support.consumer.registries import DLQ, PARTITIONS, TOPIC, WAIT, Killed, Member, Scanner, World
from tsdb.parallel_consumer import CommitFailed, InvalidConfig, Options, OutRecord, Polled, Position, Record
from tsdb.parallel_consumer.registry import RegistryOptions
from tsdb.parallel_consumer.scheduling.dead_letters import PREFIX

HOUR_S = 3_600.0
MINUTE_S = 60.0
NUMBERS = [(f"wait-{name}-ms", b"1") for name in ("timestamp", "prepared-at", "expires-at")]
NUMBERS += [("wait-partition", b"1"), ("wait-offset", b"1")]


def finish(record: Record) -> None: ...


def committed(world: World) -> int:
    return sum(world.orders.commits[topic_partition].next_offset for topic_partition in world.orders.commits)


@pytest.mark.parametrize("seed", range(20))
def test_each_processed_record_has_one_null_record_for_any_outcome(seed: int) -> None:
    world = World(seed)
    world.fill(200)
    done: Counter[tuple[int, int]] = Counter()

    def handle(record: Record) -> None:
        done[record.partition, record.offset] += 1
        outcome = random.Random(f"{seed}/{record.value!r}").randrange(6)
        if outcome:
            raise [ValueError, KeyError, LookupError, OSError, OSError][outcome - 1]("as it falls")

    member = Member(world, handle)
    member.run_until(lambda: not member.core.status.unfinished and committed(world) >= sum(world.orders.ends.values()))
    member.close()
    assert len(done) == sum(world.orders.ends.values()) > 200  # Some were requeued.
    assert world.null_records == len(done) == member.metrics.posted._value.get()
    assert not world.open


def test_a_hanging_record_does_not_hold_back_the_position() -> None:
    world = World(1)
    world.fill(100)
    member = Member(world, finish, hangs=True)
    member.step(100)
    assert committed(world) == 100
    assert len(world.open) == 100
    running = len(member.scheduler.running)
    assert 0 < running <= 16


def test_nothing_is_acknowledged_or_handled_before_its_copy_is_durable() -> None:
    world = World(1)
    world.fill(20)
    world.held = []
    member = Member(world, finish)
    member.step(100)
    assert committed(world) == 0
    assert not member.scheduler.started
    assert [record.headers[0][0] for record, _ in world.held][:1] == ["wait-topic"]
    world.release()
    member.run_until(lambda: committed(world) == 20 and not world.open)


def test_copies_are_sent_and_handed_over_in_the_order_of_the_source() -> None:
    world = World(2)
    world.fill(100)
    failing = Counter[bytes | None]()

    def fault(record: OutRecord) -> str | None:
        failing[record.key] += 1
        return "unavailable" if record.topic == WAIT and world.random.random() < 0.2 else None

    member = Member(world, finish)
    member.step(3)
    world.fault = fault
    world.fill(200)
    member.run_until(lambda: len(member.scheduler.ended) == 300)
    for partition in range(PARTITIONS):
        by_key: dict[bytes | None, list[int]] = {}
        for record in member.scheduler.ended:
            if record.partition == partition:
                by_key.setdefault(record.key, []).append(record.offset)
        assert all(offsets == sorted(offsets) for offsets in by_key.values())
    world.fault = lambda record: None
    member.close()
    assert not world.open
    assert member.metrics.send_failures._value.get() > 0


@pytest.mark.parametrize("seed", range(10))
def test_a_kill_leaves_at_most_the_open_copies_and_loses_nothing(seed: int) -> None:
    world = World(seed)
    world.fill(150)
    handled: Counter[tuple[int, int]] = Counter()

    def handle(record: Record) -> None:
        handled[record.partition, record.offset] += 1

    options = Options(commit_records=1, records_max=20, poll_records_max=20)
    first = Member(world, handle, options=options)
    first.step(seed * 3 + 5)
    first.kill()
    orphans = len(world.open)
    # Records read and not finished, records it could still take, and records whose completion was not processed yet.
    assert orphans <= options.records_max + options.poll_records_max
    second = Member(world, handle)
    second.run_until(lambda: committed(world) == 150 and not second.core.status.unfinished)
    second.close()
    given_up = {(record.partition, record.offset) for record in world.open.values()}
    assert given_up | set(handled) == {(p, o) for p in range(PARTITIONS) for o in range(75)}
    assert len(given_up) <= orphans


def test_a_clean_end_leaves_no_copy_and_the_next_member_continues_exactly_there() -> None:
    world = World(3)
    world.fill(400)
    handled: Counter[tuple[int, int]] = Counter()

    def handle(record: Record) -> None:
        handled[record.partition, record.offset] += 1

    for _ in range(6):
        member = Member(world, handle)
        member.step(12)
        member.close()
        assert not world.open
    last = Member(world, handle)
    last.run_until(lambda: len(handled) == 400)
    last.close()
    assert set(handled.values()) == {1}
    assert not world.open


@pytest.mark.slow
def test_a_clean_end_waits_for_the_acknowledgements_of_all_null_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(20)
    world.fill(100)
    member = Member(world, finish, hangs=True)
    member.step(40)
    assert len(world.open) == 100
    world.held, over = [], threading.Event()

    def answer_each() -> None:
        """The next acknowledgement arrives once the one before was processed; none is processed after the end."""
        while not over.is_set():
            if world.held and not member.registry._answered.is_set():
                record, on_sent = world.held.pop(0)
                world.store([record])
                on_sent(None)
            over.wait(0.0001)

    answering = threading.Thread(target=answer_each)
    answering.start()
    try:
        member.close()
    finally:
        over.set()
        answering.join()
    assert not world.open
    assert not world.held
    assert "keep their copies" not in caplog.text


def test_a_refusing_wait_topic_is_logged_once_a_partition(caplog: pytest.LogCaptureFixture) -> None:
    world = World(20)
    world.fill(100)
    world.fault = lambda record: "no_topic"
    member = Member(world, finish)
    member.step(40)
    lines = [record.getMessage() for record in caplog.records if "not taken by wait topic" in record.getMessage()]
    assert 1 <= len(lines) <= PARTITIONS
    assert all("(no_topic), and is sent again" in line for line in lines)
    world.fault = lambda record: None
    member.close()


def test_moved_partitions_are_handed_back_and_no_record_runs_twice() -> None:
    world = World(4)
    world.fill(600)
    handled: Counter[tuple[int, int]] = Counter()

    def handle(record: Record) -> None:
        handled[record.partition, record.offset] += 1

    first = Member(world, handle)
    first.step(30)
    second = Member(world, handle)
    for _ in range(200):
        first.step()
        second.step()
    second.close()
    first.run_until(lambda: len(handled) == 600)
    first.close()
    assert set(handled.values()) == {1}
    assert not world.open


def test_records_expire_when_their_position_cannot_be_returned() -> None:
    world = World(5)
    world.fill(50)
    member = Member(world, finish, hangs=True, options=Options(drain_s=0.1))
    member.step(50)
    world.orders.commit_fault = lambda topic_partition: "lost"
    member.close()
    assert len(world.open) == 50 == member.metrics.left_behind._value.get()


def test_lost_partitions_leave_their_open_copies() -> None:
    world = World(6)
    world.fill(50)
    member = Member(world, finish, hangs=True)
    member.step(50)
    world.orders.kill(member.inner)
    member.step(5)
    assert member.metrics.left_behind._value.get() == 50


def test_records_with_too_large_copies_are_acknowledged_when_finished() -> None:
    world = World(7)
    world.fill(30)
    world.fault = lambda record: "record_too_large" if record.topic == WAIT and record.value == b"v10" else None
    member = Member(world, finish)
    member.run_until(lambda: committed(world) == 30)
    assert member.metrics.unregistered._value.get() == 1
    assert len(member.scheduler.ended) == 30
    member.close()
    assert world.null_records == 29


def test_copies_in_flight_are_bounded_and_polling_goes_on() -> None:
    world = World(8)
    world.fill(200)
    world.held = []
    member = Member(world, finish, preparing_max=10)
    member.step(50)
    assert len(world.held) <= 10
    for _ in range(5):
        polls = len(member.inner.polls)
        world.clock.advance(1.1)
        member.step(2)
        assert len(member.inner.polls) > polls
    assert len(world.held) <= 10 + PARTITIONS
    world.release()
    member.run_until(lambda: len(member.scheduler.ended) == 200)
    member.close()
    assert not world.open


def test_each_orphan_is_a_dead_letter_once_after_61_minutes() -> None:
    world = World(9)
    world.orders.append(TOPIC, 0, None, key=None, headers=[("h", b"\xff\x00")], timestamp_ms=-1)
    world.orders.append(TOPIC, 1, b"value", key=b"\x00key", headers=[("wait-topic", b"x")], timestamp_ms=123)
    member = Member(world, finish, hangs=True)
    member.step(20)
    member.kill()
    scanner = Scanner(world)
    scanner.step()
    assert scanner.scanner.waiting == 2
    for minute in range(62):
        assert len(world.dead_letters) == (0 if minute < 60 else 2), minute
        world.clock.advance(MINUTE_S)
        scanner.step()
    again = Scanner(world)
    scanner.kill()
    world.clock.advance(9 * HOUR_S)
    again.step()
    first, second = sorted(world.dead_letters, key=lambda dead_letter: dead_letter.partition)
    assert (first.topic, first.partition, first.key, first.value) == (DLQ, 0, None, None)
    assert (second.topic, second.partition, second.key, second.value) == (DLQ, 1, b"\x00key", b"value")
    headers = dict(first.headers)
    assert headers["h"] == b"\xff\x00"
    assert headers[PREFIX + "reason"] == b"expired"
    assert (headers[PREFIX + "topic"], headers[PREFIX + "offset"], headers[PREFIX + "timestamp-ms"]) == (
        b"orders",
        b"0",
        b"-1",
    )
    assert not world.open
    assert again.scanner.waiting == 0


def test_a_late_null_record_cancels_an_unsent_expiry() -> None:
    world = World(10)
    world.fill(10)
    member = Member(world, finish, hangs=True)
    member.step(20)
    world.clock.advance(2 * HOUR_S)
    while member.scheduler.running:
        member.scheduler.end(0)
        member.step()
    member.step(20)
    assert not world.open
    scanner = Scanner(world)
    scanner.step()
    assert not world.dead_letters


def test_an_unread_null_record_cancels_too() -> None:
    world = World(11)
    world.fill(2)
    member = Member(world, finish, hangs=True)
    member.step(20)
    scanner = Scanner(world)
    scanner.step()
    world.clock.advance(2 * HOUR_S)
    for key, record in list(world.open.items()):
        world.waits.append(WAIT, record.partition, None, key=key)
    scanner.step()
    assert not world.dead_letters


def test_an_unacknowledged_dead_letter_is_resent_before_its_copy_ends() -> None:
    world = World(12)
    world.fill(3)
    member = Member(world, finish, hangs=True)
    member.step(20)
    member.kill()
    scanner = Scanner(world)
    world.clock.advance(2 * HOUR_S)
    world.fault = lambda record: "unavailable" if record.topic == DLQ else None
    for _ in range(20):
        scanner.step()
        world.clock.advance(1.0)
    assert len(world.open) == 3
    assert world.null_records == 0
    world.fault = lambda record: "record_too_large" if record.value and record.topic == DLQ else None
    for _ in range(5):
        scanner.step()
        world.clock.advance(1.0)
    assert not world.open
    assert len(world.dead_letters) == 3
    assert all(dict(dead_letter.headers)[PREFIX + "value-omitted-bytes"] == b"2" for dead_letter in world.dead_letters)


@pytest.mark.parametrize("killed", ["before", "after"])
def test_a_scanner_killed_in_a_write_leaves_one_dead_letter_for_each_orphan(killed: str) -> None:
    world = World(17)
    world.fill(250)
    member = Member(world, finish, hangs=True)
    member.step(40)
    member.kill()
    orphans = len(world.open)
    assert orphans == 250
    world.clock.advance(2 * HOUR_S)
    for _ in range(2):
        scanner = Scanner(world)
        scanner.source.killed = killed
        with pytest.raises(Killed):
            scanner.step()
        scanner.kill()
        assert len(world.dead_letters) == world.null_records == orphans - len(world.open)
    last = Scanner(world)
    last.step(10)
    assert not world.open
    places = Counter(
        (dead_letter.partition, dict(dead_letter.headers)[PREFIX + "offset"]) for dead_letter in world.dead_letters
    )
    assert len(places) == 250
    assert set(places.values()) == {1}
    assert last.metrics.expired._value.get() == sum(last.source.writes) / 2


@pytest.mark.parametrize("durable", [True, False])
def test_an_undecided_write_is_repeated_before_any_other(durable: bool) -> None:
    world = World(18)
    world.fill(5)
    member = Member(world, finish, hangs=True)
    member.step(20)
    member.kill()
    world.clock.advance(2 * HOUR_S)
    scanner = Scanner(world)
    scanner.source.undecided = durable
    scanner.step(2)
    for _ in range(5):
        world.clock.advance(1.0)
        scanner.step()
    assert not world.open
    assert len(world.dead_letters) == world.null_records == 5
    assert scanner.metrics.expired._value.get() == 5


def test_a_scanner_without_its_partitions_writes_nothing() -> None:
    world = World(19)
    world.fill(6)
    member = Member(world, finish, hangs=True)
    member.step(20)
    member.kill()
    stopped = Scanner(world)
    stopped.step()
    world.clock.advance(2 * HOUR_S)
    # The scanner does not see it before it writes.
    poll, stopped.source.poll = stopped.source.poll, lambda timeout_s, records_max: Polled()  # type: ignore[method-assign]
    world.waits.kill(stopped.source)
    stopped.step()
    assert not world.dead_letters
    Scanner(world).step()
    assert len(world.dead_letters) == 6
    stopped.source.poll = poll  # type: ignore[method-assign]
    stopped.step()
    world.clock.advance(2.0)
    stopped.step()
    assert len(world.dead_letters) == 6


@pytest.mark.slow
def test_after_eight_hours_without_a_scanner_a_new_one_catches_up() -> None:
    paces: list[float] = []
    for scanned in (True, False):
        world = World(13)
        scanner = Scanner(world) if scanned else None
        handled: Counter[tuple[int, int]] = Counter()

        def handle(record: Record, handled: Counter[tuple[int, int]] = handled) -> None:
            handled[record.partition, record.offset] += 1

        orphaned = Member(world, handle)
        world.fill(40)
        orphaned.step(4)
        orphaned.kill()
        orphans = len(world.open)
        assert orphans > 0
        began_s = world.clock.monotonic()
        steps = 0
        member = Member(world, handle)
        for number in range(96):  # Some records come every five minutes.
            world.fill(20)
            before = steps
            while committed(world) < sum(world.orders.ends.values()) or member.core.status.unfinished:
                member.step()
                steps += 1
                assert steps < before + 2_000
            world.clock.advance(began_s + 300 * (number + 1) - world.clock.monotonic())
            if scanner is not None:
                scanner.step()
        paces.append(steps)
        late = Scanner(world)
        if scanner is not None:
            scanner.kill()
        late.step(50)
        member.close()
        late.step(50)
        assert not world.open
        given_up = {
            (dead_letter.partition, int(dict(dead_letter.headers)[PREFIX + "offset"]))
            for dead_letter in world.dead_letters
        }
        assert len(given_up) == len(world.dead_letters) <= orphans
        ends = {partition: world.orders.ends[TOPIC, partition] for partition in range(PARTITIONS)}
        assert given_up | set(handled) == {(p, offset) for p, end in ends.items() for offset in range(end)}
    assert paces[1] <= 1.05 * paces[0]


@pytest.fixture
def far_from_utc() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "Pacific/Kiritimati"  # UTC + 14.
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_expiry_is_in_utc_in_any_time_zone() -> None:
    world = World(14)
    world.fill(1)
    member = Member(world, finish, hangs=True, expiry_s=10.0)
    member.step(5)
    (copy,) = [record for record in world.copies() if record.value is not None]
    expires_at_ms = int(dict(copy.headers)["wait-expires-at-ms"])
    assert 0 <= world.clock.now_ms() + 10_000 - expires_at_ms < 5_000
    scanner = Scanner(world)
    scanner.step()
    assert not world.dead_letters
    world.clock.advance(10.0)
    scanner.step()
    assert len(world.dead_letters) == 1


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, b"v", []),
        (b"k", b"v", []),
        (b"k", b"v", [("wait-topic", b"t"), ("wait-partition", b"x")]),
        (
            b"k",
            b"v",
            [("wait-topic", b"\xff"), *((f"wait-{n}", b"1") for n in ("partition", "offset", "timestamp-ms"))],
        ),
    ],
)
def test_invalid_wait_records_are_skipped_and_counted(
    key: bytes | None, value: bytes, headers: list[tuple[str, bytes]]
) -> None:
    world = World(15)
    world.waits.append(WAIT, 0, value, key=key, headers=headers)
    scanner = Scanner(world)
    scanner.step()
    world.clock.advance(2 * HOUR_S)
    scanner.step()
    assert not world.dead_letters
    assert scanner.metrics.refused._value.get() == 1


def test_commits_of_removed_partitions_are_refused() -> None:
    world = World(16)
    member = Member(world, finish)
    with pytest.raises(CommitFailed) as refused:
        member.registry.commit({("elsewhere", 0): Position(1)})
    assert refused.value.reason == "stale_member"


@pytest.mark.parametrize("options", [{"topic": ""}, {"expiry_s": 0}, {"preparing_max": 0}, {"commit_interval_s": 0}])
def test_invalid_registry_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match="needs a topic"):
        RegistryOptions(**{"topic": "w", **options})  # type: ignore[arg-type]
