"""Outages of hours in virtual time: nothing is diverted, requests become rare, and all is loaded afterwards."""

from __future__ import annotations

import random
from collections.abc import Collection

import pytest

from support.data.chunk_topics import Expected, staged
from support.fakes.fake_chunk_store import FakeChunkStore
from tsdb.codec.chunk.key import ChunkKey
from tsdb.history.loader.errors import POLICY
from tsdb.history.loader.loaded_marks import LoadedMarks
from tsdb.history.loader.loader import lane_of, marker_is_due
from tsdb.history.loader.loading import Loading
from tsdb.history.loader.raises import Raises
from tsdb.history.loader.remembered import Remembered
from tsdb.log.chains import chain_of
from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, SERIES
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.model.time_set import PRODUCTION
from tsdb.parallel_consumer import Options, Record
from tsdb.parallel_consumer.testing import MemoryBroker, MemoryProducer, Simulation, VirtualClock

PARTITIONS = 2
HOURS = 3_600.0


def no_partitions(gone: Collection[int]) -> None:
    raise AssertionError(f"history still has what was loaded of {gone}")


class Rig:
    """A loader's parts over a broker in memory, a history in dicts and a clock of the test."""

    def __init__(self, seed: int) -> None:
        entries, self.expected = staged("log", PARTITIONS, 12, 6, seed)
        self.broker = MemoryBroker(PARTITIONS, CHUNKS, SERIES)
        for entry in entries:
            self.broker.append(entry.topic, entry.partition, entry.value, key=entry.key)
        self.store, self.producer, self.clock = FakeChunkStore(), MemoryProducer(), VirtualClock()
        self._seed = seed

    def simulation(self) -> Simulation:
        raises = Raises(self.store, no_partitions, lambda: None)
        marks, chain = LoadedMarks(self.store, raises), chain_of("loader", lambda: 0)
        loading = Loading(self.store, marks, Remembered(), PRODUCTION, 1 << 19, chain)

        def handler(record: Record) -> None:
            answers: list[BaseException | None] = []
            loading(record, answers.append)
            raises.write_all()
            if answers[0] is not None:
                raise answers[0]

        simulation: Simulation = Simulation(
            self.broker,
            handler,
            self._seed,
            clock=self.clock,
            order=lane_of,
            policy=POLICY,
            options=Options(concurrency=4, poll_records_max=50),
            producer=self.producer,
            dead_letter_topic=CHUNKS_DLQ,
            gate=lambda record: marker_is_due(record, simulation.core.position),
        )
        return simulation

    def all_is_loaded(self) -> bool:
        return all(
            place in self.broker.commits and self.broker.commits[place].next_offset == end
            for place, end in self.broker.ends.items()
        )

    def assert_holds(self, expected: Expected) -> None:
        assert self.store.rows == expected.rows
        assert self.store.series == expected.series
        assert {row.partition: row for row in self.store.loaded_rows.values()} == expected.loaded
        assert set(self.store.hole_list) == set(expected.holes)
        assert self.producer.sent == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))])
def test_eight_hours_without_history_divert_nothing(seed: int) -> None:
    rig = Rig(seed)
    ends_at = 8 * HOURS

    def fault(kind: str) -> TsdbError | None:
        in_outage = len(rig.store.writes) > 30 and rig.clock.monotonic() < ends_at
        return Unavailable("away", reason="timeout") if in_outage else None

    rig.store.fault = fault
    simulation = rig.simulation()
    simulation.run_until(lambda: rig.clock.monotonic() > ends_at - 60.0, wait_s=30.0, steps_max=100_000)
    tries = len(rig.store.writes)
    assert tries < 4 * 8 * HOURS / 7.0, "asked less than once in seven seconds for each write in flight"
    assert simulation.core.status.blocked == 4
    simulation.run_until(rig.all_is_loaded, steps_max=100_000)
    simulation.close()
    rig.assert_holds(rig.expected)
    assert rig.clock.monotonic() < ends_at + 60.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_overloaded_history_is_not_lost_to(seed: int) -> None:
    rig, source = Rig(seed), random.Random(seed)

    def fault(kind: str) -> TsdbError | None:
        return Overloaded("too much") if source.random() < 0.5 else None

    rig.store.fault = fault
    simulation = rig.simulation()
    simulation.run_until(rig.all_is_loaded, steps_max=100_000)
    simulation.close()
    rig.assert_holds(rig.expected)


@pytest.mark.parametrize("seed", range(8))
def test_loaders_killed_during_an_outage_lose_nothing(seed: int) -> None:
    rig, source = Rig(seed), random.Random(seed)
    away = True
    rig.store.fault = lambda kind: Unavailable("away") if away and source.random() < 0.7 else None
    for _ in range(5):
        simulation = rig.simulation()
        simulation.step(source.randrange(1, 400), wait_s=1.0)
        simulation.kill()
        for (_, partition), loaded in rig.store.loaded_rows.items():
            assert_all_below_is_there(rig.store.rows, rig.expected, partition, loaded.position)
    away = False
    simulation = rig.simulation()
    simulation.run_until(rig.all_is_loaded, steps_max=100_000)
    simulation.close()
    rig.assert_holds(rig.expected)


def assert_all_below_is_there(rows: dict[ChunkKey, bytes], expected: Expected, partition: int, position: int) -> None:
    for key in expected.rows:
        if (key.pack_id - 1) // 1_000 == partition and key.order < position:
            assert key in rows, f"loaded says {position}, and {key} is not there"
