"""Upkeep: heads rest when no record comes, and have rounds while something may be left to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from tsdb.head.state import Maintained
from tsdb.model.clock import ManualClock
from tsdb.replay.upkeep import BUSY_S, REST_S, Upkeep


@dataclass
class CountedHead:
    """A head that counts its rounds. work: rounds that find something."""

    next_offset: int = 0
    rounds: int = 0
    work: int = 0

    def maintain(self) -> Maintained:
        self.rounds += 1
        self.work -= 1
        return Maintained(more=self.work >= 0)


@dataclass
class Bench:
    """Two heads, and an owner that runs the upkeep whenever it is due."""

    clock: ManualClock = field(default_factory=ManualClock)
    busy: CountedHead = field(default_factory=CountedHead)
    quiet: CountedHead = field(default_factory=CountedHead)

    def __post_init__(self) -> None:
        self.upkeep = Upkeep(self.clock)

    def run(self, seconds: float, records_each: int = 0, without_capacity: tuple[int, ...] = ()) -> tuple[int, int]:
        """The rounds of both heads in this time."""
        before = self.busy.rounds, self.quiet.rounds
        for _ in range(round(seconds / 0.05)):
            self.clock.sleep(0.05)
            self.busy.next_offset += records_each
            if records_each or without_capacity:
                self.upkeep.hurry(without_capacity)
            if self.upkeep.due_in_s() <= 0.0:
                self.upkeep.run({0: self.busy, 1: self.quiet})
        return self.busy.rounds - before[0], self.quiet.rounds - before[1]


def test_heads_without_records_have_a_round_every_few_seconds() -> None:
    bench = Bench()
    bench.run(2.0)
    busy, quiet = bench.run(10 * REST_S)
    assert busy == quiet
    assert 9 <= quiet <= 10


def test_a_head_with_records_has_its_rounds_at_once_and_the_other_rests() -> None:
    bench = Bench()
    bench.run(2.0)
    busy, quiet = bench.run(4 * REST_S, records_each=1)
    assert busy >= 4 * REST_S / BUSY_S * 0.8
    assert quiet <= 5


def test_two_rounds_follow_the_last_record_because_a_fold_at_rest_compares_two() -> None:
    bench = Bench()
    bench.run(2.0, records_each=1)
    assert bench.run(1.0)[0] >= 2
    assert bench.run(REST_S - 1.5)[0] == 0


def test_rounds_go_on_while_one_finds_work() -> None:
    bench = Bench()
    bench.run(2.0)
    bench.busy.work = 40
    bench.run(REST_S)
    assert bench.run(40 * BUSY_S)[0] >= 30


def test_a_head_without_room_has_rounds_which_make_some() -> None:
    bench = Bench()
    bench.run(2.0)
    busy, quiet = bench.run(4 * REST_S, without_capacity=(1,))
    assert quiet >= 4 * REST_S / BUSY_S * 0.7
    assert busy <= 5
