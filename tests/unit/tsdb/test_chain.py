"""Chain headers: the golden chain to the byte, strict reading, fan-in, clocks that are behind, hops that run out."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from tsdb.chain import (
    CLOCK_BEHIND,
    INT8_MAX,
    INT64_MAX,
    LOOP_PROTECTION,
    MALFORMED,
    OUT_OF_RANGE,
    REASONS,
    TRACE_BYTES_MAX,
    TTL_HOPS,
    UNBALANCED,
    Chain,
    Link,
    Mode,
    Written,
    freshness_ms,
    header_time,
    parse_header_time,
)

GOLDEN = Path(__file__).parents[2] / "golden/v1/chain/chain.json"
TREE = ["created-at", "origin", "total", "source"]
FULL = ["processing", "wait", "stage", "hops", "ttl"]
T0 = 1_767_323_045_678  # 2026-01-02T03:04:05.678Z


class World:
    """Two clocks and a counter, for all services of a system."""

    def __init__(self) -> None:
        self.now = T0
        self.counts: Counter[str] = Counter()

    def service(self, name: str, mode: Mode = Mode.FULL, *, ahead_ms: int = 0) -> Chain:
        return Chain(
            "shop",
            name,
            mode,
            count=self._count,
            now_ms=lambda: self.now + ahead_ms,
            monotonic_ns=lambda: self.now * 1_000_000,
        )

    def _count(self, reason: str) -> None:
        assert reason in REASONS
        self.counts[reason] += 1

    def hop(self, chain: Chain, headers: Written, wait_ms: int, work_ms: int, *, public: bool = False) -> Written:
        self.now += wait_ms
        stage = chain.begin(chain.read(headers))
        self.now += work_ms
        return stage.produce(public=public)


@pytest.fixture
def world() -> World:
    return World()


def test_the_golden_chain_to_the_byte(world: World) -> None:
    written = [world.service("shop-front").first()]
    written.append(world.hop(world.service("billing"), written[-1], 120, 80))
    written.append(world.hop(world.service("stock"), written[-1], 60, 40))
    written.append(world.hop(world.service("mail"), written[-1], 40, 60, public=True))
    golden = [[(name, value.encode()) for name, value in message] for message in json.loads(GOLDEN.read_text())]
    assert written == golden
    links = [world.service("any").read(message) for message in written]
    assert [link.total_ms for link in links] == [0, 200, 300, 400]
    assert [link.processing_ms for link in links[:3]] == [0, 80, 120]
    assert [link.wait_ms for link in links[:3]] == [0, 120, 180]
    assert [link.hop_count for link in links[:3]] == [1, 2, 3]
    assert [link.ttl_hops for link in links[:3]] == [19, 18, 17]
    assert not world.counts


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        (Mode.OFF, []),
        (Mode.TREE, TREE),
        (Mode.FULL, [*TREE, *FULL]),
        (
            Mode.DEBUG,
            ["created-at", "origin", "total", "source", "processing", "wait", "stage", "hops", "ttl", "trace"],
        ),
    ],
)
def test_a_mode_says_what_is_written(world: World, mode: Mode, names: list[str]) -> None:
    chain = world.service("billing", mode)
    written = world.hop(chain, world.service("shop").first(), 1, 1)
    assert [name for name, _ in written] == [getattr(chain, name.replace("-", "_")) for name in names]
    assert len(world.service("front", mode).first()) == (0 if mode is Mode.OFF else 2)


def test_children_inherit_each_their_own_total(world: World) -> None:
    chain = world.service("billing")
    stage = chain.begin(chain.read(world.service("shop").first()))
    world.now += 10
    first = chain.read(stage.produce())
    world.now += 15
    second = chain.read(stage.produce())
    assert (first.total_ms, second.total_ms) == (10, 25)
    assert first.origin_ms == second.origin_ms == T0
    assert first.hop_count == second.hop_count == 2


def test_what_becomes_one_is_never_below_any_of_what_it_was(world: World) -> None:
    source = random.Random(5)
    joining = world.service("joining")
    for _ in range(300):
        parents = []
        for _ in range(source.randrange(1, 6)):
            world.now += source.randrange(1_000)
            headers = world.service("shop").first()
            for _ in range(source.randrange(4)):
                headers = world.hop(world.service("hop"), headers, source.randrange(500), source.randrange(500))
            parents.append(joining.read(headers))
        world.now += source.randrange(100)
        stage = joining.begin(*parents)
        world.now += source.randrange(100)
        child = joining.read(stage.produce())
        for parent in parents:
            assert child.total_ms >= parent.total_ms
            assert child.processing_ms >= parent.processing_ms
            assert child.wait_ms >= parent.wait_ms
            assert child.hop_count > parent.hop_count
            assert child.ttl_hops < parent.ttl_hops
        assert child.wait_ms <= child.total_ms
        assert child.origin_ms == min(parent.origin_ms or parent.created_at_ms or 0 for parent in parents)
    assert not world.counts


def test_a_clock_behind_clamps_to_zero_and_is_counted(world: World) -> None:
    chain = world.service("late", ahead_ms=-5_000)
    written = world.hop(chain, world.service("shop").first(), 120, 80)
    link = chain.read(written)
    assert (link.total_ms, link.wait_ms, link.processing_ms) == (0, 0, 80)
    assert world.counts == {CLOCK_BEHIND: 2, UNBALANCED: 1}


def test_time_that_nobody_measured_is_counted(world: World) -> None:
    chain = world.service("billing")
    headers = [*world.service("shop").first(), (chain.origin, header_time(T0 - 51))]
    whole = [*headers, (chain.processing, b"0"), (chain.wait, b"0")]
    world.hop(chain, whole, 5, 5)
    assert world.counts == {UNBALANCED: 1}
    world.hop(chain, headers, 5, 5)  # The headers have no earlier part of the chain, so there is nothing to compare.
    assert world.counts == {UNBALANCED: 1}


def test_a_chain_that_feeds_itself_ends_after_its_hops(world: World) -> None:
    chain = world.service("loop")
    headers, hops = chain.first(), 1
    while not (stage := chain.begin(chain.read(headers))).expired:
        world.now += 3
        headers = stage.produce()
        hops += 1
        assert hops <= TTL_HOPS, "it goes on"
    assert hops == TTL_HOPS
    assert world.counts == {LOOP_PROTECTION: 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", MALFORMED),
        (b" 1", MALFORMED),
        (b"1_0", MALFORMED),
        (b"+1", MALFORMED),
        (b"01", MALFORMED),
        (b"-", MALFORMED),
        (b"-0", MALFORMED),
        (b"1.5", MALFORMED),
        ("٣".encode(), MALFORMED),
        (b"\xff\xfe", MALFORMED),
        (b"-1", OUT_OF_RANGE),
        (b"%d" % (INT64_MAX + 1), OUT_OF_RANGE),
        (b"9" * 10_000, OUT_OF_RANGE),
    ],
)
def test_a_bad_number_reads_as_absent_and_is_counted(world: World, text: bytes, reason: str) -> None:
    chain = world.service("billing")
    assert chain.read([(chain.wait, text), (chain.ttl, text), (chain.hops, text)]) == Link(origin_ms=None)
    assert world.counts == {reason: 3}


def test_numbers_keep_to_their_ranges(world: World) -> None:
    chain = world.service("billing")
    assert chain.read([(chain.hops, b"128")]).hop_count == 1
    assert chain.read([(chain.ttl, b"128")]).ttl_hops == 19
    assert world.counts == {OUT_OF_RANGE: 2}
    top = [
        (chain.hops, b"127"),
        (chain.ttl, b"0"),
        (chain.wait, b"%d" % INT64_MAX),
        (chain.processing, b"%d" % INT64_MAX),
    ]
    world.now += 10
    link = chain.read(world.hop(chain, top, 5, 5))
    assert (link.hop_count, link.ttl_hops) == (INT8_MAX, 0)
    assert link.wait_ms == link.processing_ms == INT64_MAX


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"2026-01-02T03:04:05Z",
        b"2026-01-02T03:04:05.678+00",
        b"2026-01-02 03:04:05.678Z",
        b"2026-01-02T03:04:05,678Z",
        b"2026-W01-5T03:04:05.678Z",
        b"2026-13-02T03:04:05.678Z",
        b"2026-01-02T03:04:60.678Z",
        b"2026-01-02T03:04: 5.678Z",
        b"1767323045678",
        "２026-01-02T03:04:05.678Z".encode()[:24],
        b"\x00" * 24,
        b"9" * 100_000,
    ],
)
def test_a_bad_time_reads_as_absent_and_is_counted(world: World, text: bytes) -> None:
    chain = world.service("billing")
    assert chain.read([(chain.created_at, text)]).created_at_ms is None
    assert chain.read([(chain.origin, text)], T0) == Link(created_at_ms=T0, whole=False)
    assert world.counts == {MALFORMED: 2}


@pytest.mark.parametrize("at_ms", [0, 1, 999, T0, -1, 253_402_300_799_999, -62_135_596_800_000])
def test_times_are_read_as_they_were_written(at_ms: int) -> None:
    assert parse_header_time(header_time(at_ms)) == at_ms


def test_times_of_no_year_are_refused() -> None:
    with pytest.raises(ValueError, match="year"):
        header_time(1 << 62)


def test_without_headers_everything_begins_here(world: World) -> None:
    chain = world.service("billing")
    link = chain.read(world.hop(chain, [], 10, 20))
    assert (link.total_ms, link.wait_ms, link.processing_ms, link.hop_count, link.ttl_hops) == (0, 0, 20, 2, 18)
    assert chain.read([(chain.wait, None)]) == Link(whole=True)
    assert not world.counts


def test_the_last_of_headers_that_come_twice_counts(world: World) -> None:
    chain = world.service("billing")
    assert chain.read([(chain.hops, b"3"), (chain.hops, b"5")]).hop_count == 5


def test_the_trace_keeps_the_newest_hops_that_fit(world: World) -> None:
    headers = world.service("shop").first()
    for number in range(200):
        headers = world.hop(world.service(f"service-{number}", Mode.DEBUG), headers, 2, 1)
    chain = world.service("any")
    trace = chain.read(headers).trace
    assert TRACE_BYTES_MAX - 20 < len(trace) <= TRACE_BYTES_MAX
    assert trace.endswith(b"service-198:2:1,service-199:2:1")
    assert chain.read([(chain.trace, b"a:1")]).trace == b""
    assert chain.read([(chain.trace, b"a:1:1," * 300)]).trace == b""
    assert world.counts[MALFORMED] == world.counts[OUT_OF_RANGE] == 1


def test_headers_of_others_are_passed_on(world: World) -> None:
    chain = world.service("billing")
    others = [("x-shop-tenant", b"a"), ("h", b"b"), ("x-other-created-at", b"c")]
    assert chain.without([*others, *world.hop(chain, chain.first(), 1, 1)]) == others


def test_freshness_is_from_when_it_was_due_else_from_its_origin(world: World) -> None:
    chain = world.service("loader")
    world.now += 500
    assert freshness_ms(chain, Link(T0 + 100, T0, due_at_ms=T0 + 200)) == 300
    assert freshness_ms(chain, Link(T0 + 100, T0)) == 500
    assert freshness_ms(chain, Link(T0 + 100)) == 400
    assert freshness_ms(chain, Link()) == freshness_ms(chain, Link(due_at_ms=T0 + 900)) == 0


def test_due_times_travel(world: World) -> None:
    chain = world.service("chunker")
    due = T0 + 10
    assert chain.read(chain.first(due_at_ms=due)).due_at_ms == due
    assert chain.read(chain.begin(Link(T0)).produce(due_at_ms=due)).due_at_ms == due


@pytest.mark.parametrize("name", ["", "a b", "ä", "-a", "a" * 65, "a:b", "a,b"])
def test_ids_that_headers_cannot_carry_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no id"):
        Chain(name, "service")
    with pytest.raises(ValueError, match="no id"):
        Chain("system", name)
