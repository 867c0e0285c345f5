"""Runs of the chunk stage over recorded logs: with any batches, stopped anywhere, resumed from the commit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from support.data.announcements import joined
from support.data.heads import SMALL_SLICES, SMALL_TIMES, Record, announcement, decoded_of, positions_of
from support.oracles.chunk_twin import Written
from tsdb.chunks.progress import Progress, decode_commit, encode_progress
from tsdb.chunks.resume import LogFacts, first_progress, required_ms, seek_offset
from tsdb.chunks.stage import ChunkStage, Emission
from tsdb.codec.chunk.chunk import PART_BYTES_MAX
from tsdb.model.time_set import SliceLengths, TimeSet

TOPIC_ID = "the-log"
NO_END_MS = 1 << 60


class Stopped(Exception):
    """Raised where the process is stopped."""


@dataclass
class ChunkRun:
    """A log of one partition, its `chunks` topic and the commit. It stops after `stop_in` further actions."""

    records: Sequence[Record]
    rng: random.Random
    times: TimeSet = SMALL_TIMES
    slices: SliceLengths = SMALL_SLICES
    part_bytes_max: int = PART_BYTES_MAX
    series: int = 6
    written: Written = field(default_factory=set)
    values: dict[bytes, bytes] = field(default_factory=dict)
    commit: tuple[int, str] | None = None
    stop_in: int | None = None
    rewritten: int = 0

    def run(self, stops: Sequence[int] = ()) -> Written:
        """Run to the end, stopped after each of these numbers of actions. Returns the output without progress
        markers."""
        for stop_in in stops:
            self.stop_in = stop_in
            try:
                self._live()
            except Stopped:
                continue
            break
        self.stop_in = None
        self._live()
        return self.written

    def _live(self) -> None:
        """One run of a process, until it is stopped or done."""
        stage = self._begin()
        at = stage.head.next_offset
        rest = [record for record in self.records if record.offset >= at]
        while rest:
            size = self.rng.choice([1, 2, 7, 40, len(rest)])
            batch, rest = rest[:size], rest[size:]
            decoded = decoded_of(batch)
            assert not len(stage.unknown_ids(decoded))
            stage.apply(decoded, *positions_of(batch))
            self._action()
            if self.rng.random() < 0.5:
                stage.maintain()
            self._emit(stage, batch[-1].broker_ms + self.rng.choice([-5, 0, 7, 15, 1000]))
        self._emit(stage, NO_END_MS)
        assert stage.due(NO_END_MS) is None
        assert stage.windows_waiting == 0

    def _begin(self) -> ChunkStage:
        first = self.records[0]
        if self.commit is None:
            progress, hole = first_progress(0, first.broker_ms, 0, self.times)
            assert hole is None
            self._commit(progress)
        assert self.commit is not None
        progress = decode_commit(*self.commit, TOPIC_ID)
        required = required_ms(progress, self.times)
        lookup = next((record.offset for record in self.records if record.broker_ms >= required), None)
        facts = LogFacts(0, self.records[-1].offset + 1, first.broker_ms, lookup)
        stage = ChunkStage(
            0,
            progress,
            seek_offset(progress, facts),
            times=self.times,
            slices=self.slices,
            part_bytes_max=self.part_bytes_max,
        )
        stage.register(*joined([announcement(number) for number in range(self.series)], broker_ms=NO_END_MS))
        return stage

    def _emit(self, stage: ChunkStage, now_ms: int) -> None:
        while (emission := stage.due(now_ms)) is not None:
            self._write(emission)
            stage.finish(emission)
            if emission.progress is not None:
                self._commit(emission.progress)

    def _write(self, emission: Emission) -> None:
        for record in (*emission.records, *emission.markers):
            self._action()
            before = self.values.setdefault(record.key, record.value)
            assert before == record.value, f"key {record.key.hex()} was written again with other bytes"
            self.rewritten += (record.key, record.value) in self.written
            self.written.add((record.key, record.value))

    def _commit(self, progress: Progress) -> None:
        self._action()
        if self.commit is not None:
            assert progress.position >= self.commit[0], "the position never goes back"
        self.commit = (progress.position, encode_progress(progress, TOPIC_ID))

    def _action(self) -> None:
        if self.stop_in is not None:
            self.stop_in -= 1
            if self.stop_in < 0:
                raise Stopped
