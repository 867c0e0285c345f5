"""Mutants: the product with one rule of the design switched off. The simulation must catch each.

A row names the rule, switches it off, and says by which profile schedules come that need the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from ingest.appends.records import join_records
from spark_backfill.building.reading import read_into
from spark_backfill.jobs.merge_late.read_backs import ReadBacks
from support.simulation.detail_mutants import DETAIL_RULES
from support.simulation.profile import (
    BACKUPS,
    BUSY,
    DAMAGED,
    DEAD_LETTERS,
    DETAILED,
    DOWNSAMPLED,
    EDGES,
    EDGES_OF_DROPS,
    FOLDS,
    FOLDS_IN_READS,
    FOLDS_OF_DETAILS,
    FORGOTTEN,
    FROM_ZERO,
    IMPORTS,
    IMPORTS_BETWEEN_READS,
    LISTINGS,
    LOSSY,
    NEW_IN_READS,
    NEW_SERIES,
    PLAIN_STARTS,
    QUERIES,
    SELECTS,
    SNAPSHOTS,
    SNAPSHOTS_OF_NEW_SERIES,
    STARTS,
    STEPS,
    SUSPENDED,
    TAKE_OVERS,
    TIGHT,
    WATCHERS,
    WATCHERS_OF_DETAILS,
    WRITES,
    Profile,
)
from tsdb.answer.answer import PartitionAnswer
from tsdb.answer.spec import SelectSpec
from tsdb.answer.state import MemoryState
from tsdb.chunks.late_minutes import LateMinutes
from tsdb.chunks.progress import Progress
from tsdb.chunks.stage import ChunkStage, Emission
from tsdb.chunks.window import ClosedWindow, base_fragments
from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.chunk.cover import Cover
from tsdb.codec.chunk.key import ChunkKey, ProgressKey, encode_key
from tsdb.codec.chunk.marker import ProgressMarker, decode_progress_marker
from tsdb.head.head import Head
from tsdb.head.maintain import Maintenance
from tsdb.head.memory import HeadMemory
from tsdb.head.slices.contents import Contents
from tsdb.head.slices.images import ContentsImage, OpenImage
from tsdb.head.slices.late_list import LateList
from tsdb.head.slices.open_slice import OpenSlices
from tsdb.head.state import HeadState
from tsdb.history.interface import Loaded
from tsdb.history.loader.loaded_marks import LoadedMarks
from tsdb.history.loader.loading import Loading
from tsdb.history.merge import merge
from tsdb.log.interface import CHUNKS
from tsdb.log.records import read_to_end
from tsdb.log.start import LogEnds, Start, resolve_start
from tsdb.parallel_consumer import Record, SpecialLane
from tsdb.query.history.downsampled import Resolutions
from tsdb.query.history.index_generation import IndexGeneration
from tsdb.query.join.completeness import check_complete, check_series_complete, seam_ms
from tsdb.query.join.joined_read import StepSplit
from tsdb.query.join.partition_join import PartitionJoin
from tsdb.query.labels import LabelsRead
from tsdb.query.promql.storage import QuerierStorage
from tsdb.query.reduction import Reduction
from tsdb.replay.series_feed import SeriesFeed
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition
from tsdb.store.snapshots.content import SnapshotPosition, place_of
from tsdb.store.watch import Watch

Patch = Callable[[pytest.MonkeyPatch], None]
SINCE_TOO_LOW = 5
PROGRESS = encode_key(ProgressKey())
FAR_MS = 1 << 40
FAR_OFFSET = 1 << 40


@dataclass(frozen=True)
class Mutant:
    """rule: the rule of the design; switch_off: takes it out of the product; profile: the profile of the schedules that
    need it.

    first: the seed to try first, which caught it when the row was written; any other may as well.
    """

    rule: str
    switch_off: Patch
    profile: Profile = SELECTS
    first: int = 0

    def __str__(self) -> str:
        return self.rule


# Section 6: stores.


def _coverage_from_horizon(patch: pytest.MonkeyPatch) -> None:
    def resolve(ends: LogEnds, *, horizon_ms: int, ahead_ms: int, now_ms: int) -> Start:
        return resolve_start(ends, horizon_ms=horizon_ms, ahead_ms=0, now_ms=now_ms)

    patch.setattr("tsdb.log.start.resolve_start", resolve)


def _ahead_ignored(patch: pytest.MonkeyPatch) -> None:
    def head(*args: Any, time_set: Any, **more: Any) -> Head:
        return Head(*args, time_set=replace(time_set, ahead_ms=FAR_MS), **more)

    patch.setattr("tsdb.store.store.Head", head)


def _since_too_low(patch: pytest.MonkeyPatch) -> None:
    stated = Contents._state_now

    def state(contents: Contents) -> HeadState:
        found = stated(contents)
        return replace(found, since_offset=max(found.since_offset - SINCE_TOO_LOW, 0))

    patch.setattr(Contents, "_state_now", state)


def _drop_keeps_coverage(patch: pytest.MonkeyPatch) -> None:
    raised = Contents.raise_coverage_locked

    def keep(contents: Contents, coverage_start_ms: int, since_offset: int) -> None:
        raised(contents, contents.coverage_start_ms, since_offset)

    patch.setattr(Contents, "raise_coverage_locked", keep)


def _drop_keeps_since(patch: pytest.MonkeyPatch) -> None:
    raised = Contents.raise_coverage_locked

    def keep(contents: Contents, coverage_start_ms: int, since_offset: int) -> None:
        raised(contents, coverage_start_ms, contents.since_offset)

    patch.setattr(Contents, "raise_coverage_locked", keep)


def _drop_takes_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.head.maintain.late_remains", lambda *slice_and_offset: None)


def _fold_reversed(patch: pytest.MonkeyPatch) -> None:
    from tsdb.head.rebuild import fold_late

    def reversed_(index: Any, slices: Any, late: Any, entries: Any, *rest: Any) -> Any:
        return fold_late(index, slices, late, entries[::-1].copy(), *rest)

    patch.setattr("tsdb.head.maintain.fold_late", reversed_)


def _tick_drops_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Maintenance, "drop_before_locked", lambda *of: None)


def _series_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SeriesFeed, "catch_up", lambda *of: None)
    patch.setattr(SeriesFeed, "poll", lambda *of: None)


# Section 19: snapshots.


def _snapshot_without_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LateList, "restore", lambda *of: None)


def _snapshot_without_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenSlices, "restore", lambda *of: None)


def _replay_beyond_snapshot(patch: pytest.MonkeyPatch) -> None:
    resumed = Contents.restore

    def restore(contents: Contents, image: Any, refs_size: int) -> None:
        resumed(contents, image, refs_size)
        contents.next_offset += 1

    patch.setattr(Contents, "restore", restore)


def _series_from_the_end(patch: pytest.MonkeyPatch) -> None:
    def place(document: Any) -> SnapshotPosition:
        return replace(place_of(document), series_next_offset=FAR_OFFSET)

    patch.setattr("tsdb.store.snapshots.loader.place_of", place)
    patch.setattr("tsdb.store.snapshots.loader.check_place", lambda *of: None)


# Section 7: chunk stage.


def _decided_early(patch: pytest.MonkeyPatch) -> None:
    begun = ClosedWindow.__init__

    def early(window: ClosedWindow, head: Head, start_ms: int, decision_offset: int, *rest: Any) -> None:
        begun(window, head, start_ms, decision_offset - 1, *rest)

    patch.setattr(ClosedWindow, "__init__", early)


def _minute_before_its_end(patch: pytest.MonkeyPatch) -> None:
    due = ChunkStage.due

    def early(stage: ChunkStage, now_ms: int) -> Emission | None:
        if stage._late.current.samples:
            stage._late.end(stage._next_offset)
        return due(stage, now_ms)

    patch.setattr(ChunkStage, "due", early)


def _position_within_a_minute(patch: pytest.MonkeyPatch) -> None:
    def position(minutes: LateMinutes) -> int:
        if minutes.ended:
            return minutes.ended[0].minute.first_offset
        return minutes.current.first_offset + (0 if minutes.current.samples else 1)

    patch.setattr(LateMinutes, "position", property(position))


def _reread_from_position(patch: pytest.MonkeyPatch) -> None:
    def seek(progress: Progress, facts: Any) -> int:
        return progress.position

    patch.setattr("chunker.takeover.seek_offset", seek)


def _commit_before_acks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.log.outbox.Outbox.empty", property(lambda outbox: True))


def _not_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("chunker.takeover.check_gap", lambda *of: None)


def _newest_marker(patch: pytest.MonkeyPatch) -> None:
    def newest(log: Any, partition: int, topic_id: str) -> ProgressMarker | None:
        values = [record.value for record in read_to_end(log, CHUNKS, partition) if record.key == PROGRESS]
        return decode_progress_marker(values[-1] or b"") if values else None

    patch.setattr("chunker.takeover.highest_marker", newest)


# Section 8: loader and history.


def _from_zero_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LoadedMarks, "_keep_back", lambda *of: False)


def _series_gate_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.history.loader.loader.marker_is_due", lambda record, positions: True)


def _marker_overtakes(patch: pytest.MonkeyPatch) -> None:
    from tsdb.history.loader.loader import lane_of

    def lane(record: Record) -> Any:
        found = lane_of(record)
        return SpecialLane.UNORDERED if found is SpecialLane.BARRIER else found

    patch.setattr("tsdb.history.loader.loader.lane_of", lane)


def _lowest_order_wins(patch: pytest.MonkeyPatch) -> None:
    def lowest(fragments: Sequence[Fragment]) -> Fragment:
        return _negated(merge([_negated(fragment) for fragment in fragments]))

    for place in ("tsdb.query.join.seam.merge", "tsdb.query.history.stretch.merge", "tsdb.history.fold.merge"):
        patch.setattr(place, lowest)


def _negated(fragment: Fragment) -> Fragment:
    return replace(fragment, order=-fragment.order)


def _fold_covers_itself(patch: pytest.MonkeyPatch) -> None:
    of = Cover.of

    def wide(parts: int, keys: Collection[ChunkKey]) -> Cover:
        return of(parts, [*keys, *_own])

    from tsdb.history import fold as module

    folded = module.fold
    _own: list[ChunkKey] = []

    def fold(rows: Any, order: int, **more: Any) -> Any:
        _own[:] = [row.key for row in folded(rows, order, **more)]
        made = folded(rows, order, **more)
        _own.clear()
        return made

    patch.setattr("tsdb.history.fold.Cover.of", wide)
    patch.setattr("spark_backfill.jobs.merge_late.work.fold", fold)


# Section 9: the seam.


def _loaded_after_chunks(patch: pytest.MonkeyPatch) -> None:
    answered = PartitionJoin.answer

    def late(join: PartitionJoin, state: MemoryState, held: Any, steps: Any) -> PartitionAnswer:
        joined = answered(join, state, held, steps)
        if state.partition in join.seams:
            check_complete(state, join.history.store.loaded(state.topic_id), join.seams[state.partition])
        return joined

    patch.setattr("tsdb.query.join.joined_read.check_complete", lambda *of: None)
    patch.setattr(PartitionJoin, "answer", late)


def _position_not_checked(patch: pytest.MonkeyPatch) -> None:
    def check(state: MemoryState, loaded: dict[int, Loaded], seam: int) -> None:
        check_complete(replace(state, since_offset=0), loaded, seam)

    patch.setattr("tsdb.query.join.joined_read.check_complete", check)


def _emitted_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "tsdb.query.join.joined_read.check_complete", lambda state, loaded, seam: check_series_complete(state, loaded)
    )


def _late_has_no_order(patch: pytest.MonkeyPatch) -> None:
    from tsdb.query.join.seam import fragment_of

    def plain(held: Any) -> Fragment | None:
        return fragment_of(replace(held, orders=np.minimum(held.orders, 0)))

    patch.setattr("tsdb.query.join.seam.fragment_of", plain)


def _index_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IndexGeneration, "now", lambda generation: 0)


def _deleted_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReadBacks, "before", lambda notes, broker_ms: frozenset(notes.at_ms))


# Ranges end where they say, to the millisecond.


def _coverage_below_the_slice_end(patch: pytest.MonkeyPatch) -> None:
    raised = Contents.raise_coverage_locked

    def early(contents: Contents, coverage_start_ms: int, since_offset: int) -> None:
        raised(contents, coverage_start_ms - 1, since_offset)

    patch.setattr(Contents, "raise_coverage_locked", early)


def _window_ends_early(patch: pytest.MonkeyPatch) -> None:
    def early(head: Any, packs: Any, first: int, last: int, start_ms: int, end_ms: int, decision: int) -> Any:
        return base_fragments(head, packs, first, last, start_ms, end_ms - 1, decision)

    patch.setattr("tsdb.chunks.window.base_fragments", early)


def _steps_begin_early(patch: pytest.MonkeyPatch) -> None:
    apply = Reduction.apply

    def early(reduction: Reduction, fragment: Fragment) -> Fragment:
        return apply(replace(reduction, start_ms=reduction.start_ms - 1), fragment)

    patch.setattr(Reduction, "apply", early)


def _samples_end_before_the_steps(patch: pytest.MonkeyPatch) -> None:
    made = StepSplit.specs

    def early(split: StepSplit, spec: SelectSpec) -> list[SelectSpec]:
        first, *others = made(split, spec)
        return [replace(first, end_ms=first.end_ms - 1), *others] if others else [first]

    patch.setattr(StepSplit, "specs", early)


def _seam_below_coverage(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.query.join.joined_read.seam_ms", lambda state, end_ms: seam_ms(state, end_ms) - 1)


# Appends and reads.


def _joined_backwards(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("ingest.appends.partition_queue.join_records", lambda parts: join_records(parts[::-1]))


def _applied_after_the_gather(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HeadState, "through", lambda before, after: after)


def _snapshot_without_holes(patch: pytest.MonkeyPatch) -> None:
    resumed = Contents.restore

    def restore(contents: Contents, image: ContentsImage, refs_size: int) -> None:
        resumed(contents, image._replace(holes=()), refs_size)

    patch.setattr(Contents, "restore", restore)


def _snapshot_without_last(patch: pytest.MonkeyPatch) -> None:
    resumed = Contents.restore

    def restore(contents: Contents, image: ContentsImage, refs_size: int) -> None:
        cut = [_without_last(one) if one.newest_offset == image.applied_offset else one for one in image.open]
        resumed(contents, image._replace(open=tuple(cut)), refs_size)

    patch.setattr(Contents, "restore", restore)


def _without_last(one: OpenImage) -> OpenImage:
    return one._replace(ref=one.ref[:-1], ts=one.ts[:-1], value=one.value[:-1])


def _job_ends_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.log.index_generation.SEEN_AFTER_S", 0.25)


def _polled_rarely(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.query.history.index_generation.POLL_EVERY_S", 1.0)


def _range_without_its_first(patch: pytest.MonkeyPatch) -> None:
    read = QuerierStorage._read

    def late(storage: QuerierStorage, matchers: Any, start_ms: int, last_ms: int) -> Any:
        return read(storage, matchers, start_ms + 1, max(last_ms, start_ms + 1))

    patch.setattr(QuerierStorage, "_read", late)


def _series_of_memory_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.query.series._with_history", lambda series, history: series)


def _labels_of_memory_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LabelsRead, "_history_texts", lambda read, joined, states: iter(()))


def _watch_from_the_last(patch: pytest.MonkeyPatch) -> None:
    begun = Watch.__init__

    def again(watch: Watch, partitions: Any, matchers: Any, resume: Any) -> None:
        begun(watch, partitions, matchers, {partition: at - 1 for partition, at in resume.items()})

    patch.setattr(Watch, "__init__", again)


def _after_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AppliedSignal, "has", lambda *of: True)


def _corrupt_without_hole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.head.write.apply.corrupt_holes", lambda *of: [])


def _unknown_without_hole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.head.write.apply.unknown_holes", lambda *of: [])


def _corrupt_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.chunks.stage.corrupt_losses", lambda *of: [])


def _unknown_not_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.chunks.stage.unknown_losses", lambda *of: [])


# Section 8: history that went back.


def _restored_claim_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.backup.restore.restored_rows", lambda log, restored: [restored.claim])


def _backup_of_two_loads(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tsdb.backup.plan.check_same", lambda *of: None)
    patch.setattr("tsdb.backup.backup.check_same", lambda *of: None)


def _not_loadable_without_hole(patch: pytest.MonkeyPatch) -> None:
    def give_up(loading: Loading, record: Record, error: Any, done: Any) -> None:
        loading._refuse(error, done)

    patch.setattr(Loading, "_give_up", give_up)


def _not_loadable_skipped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Loading, "_refuse", lambda loading, error, done: done(None))


def _rebuilt_from_the_second(patch: pytest.MonkeyPatch) -> None:
    def read(target: Any, log: Any, partition: int, first_offset: int, *rest: Any) -> Any:
        return read_into(target, log, partition, first_offset + 1, *rest)

    patch.setattr("spark_backfill.building.build.read_into", read)


def _soft_limit_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Maintenance, "_drop", lambda *of: None)


def _hard_limit_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HeadMemory, "check_samples", lambda memory: None)


def _ready_without_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "observe_waiting", lambda *of: None)


def _derived_past_the_span(patch: pytest.MonkeyPatch) -> None:
    spans = Resolutions._spans

    def wide(resolutions: Resolutions) -> Any:
        return {name: replace(span, end_ms=span.end_ms + FAR_MS) for name, span in spans(resolutions).items()}

    patch.setattr(Resolutions, "_spans", wide)


def _span_before_its_series(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("spark_backfill.jobs.downsample.job.wait_until_seen", lambda *of: None)


DETAIL_PROFILES = {"fold": FOLDS_OF_DETAILS, "watcher": WATCHERS_OF_DETAILS}
MUTANTS = (
    Mutant("C = H + ahead", _coverage_from_horizon, STARTS, first=8),
    Mutant("readers ignore samples too far ahead", _ahead_ignored, first=1),
    Mutant("since_offset is the first offset held", _since_too_low, PLAIN_STARTS, first=34),
    Mutant("a drop raises coverage", _drop_keeps_coverage),
    Mutant("a drop raises since_offset", _drop_keeps_since, STARTS, first=28),
    Mutant("a drop keeps late samples", _drop_takes_late, first=21),
    Mutant("the later of two late samples wins", _fold_reversed),
    Mutant("an import's tick drops old slices", _tick_drops_nothing, IMPORTS),
    Mutant("a record waits for its series", _series_not_waited_for),
    Mutant("a snapshot holds the late list", _snapshot_without_late, SNAPSHOTS),
    Mutant("a snapshot holds the open slices", _snapshot_without_open, SNAPSHOTS),
    Mutant("replay goes on right after a snapshot", _replay_beyond_snapshot, SNAPSHOTS),
    Mutant("series is read on from a snapshot's position", _series_from_the_end, SNAPSHOTS_OF_NEW_SERIES),
    Mutant("D is the first offset past the window", _decided_early),
    Mutant("a late minute is emitted once it ended", _minute_before_its_end),
    Mutant("a position is the start of a late minute", _position_within_a_minute, TAKE_OVERS, first=14),
    Mutant("a take-over rereads open windows", _reread_from_position, TAKE_OVERS),
    Mutant("no base of a window that is not whole", _not_whole, LOSSY, first=95),
    Mutant("without a commit the highest markers count", _newest_marker, SUSPENDED, first=2),
    Mutant("a commit waits for acknowledgements", _commit_before_acks),
    Mutant("from zero a marker waits for the end at start", _from_zero_at_once, FROM_ZERO, first=6),
    Mutant("a marker waits for series", _series_gate_open, NEW_SERIES, first=4),
    Mutant("a marker waits for all before it", _marker_overtakes),
    Mutant("the highest order wins", _lowest_order_wins),
    Mutant("a fold never covers its own key", _fold_covers_itself, FOLDS, first=1),
    Mutant("what a fold covers stays for as long as a read", _deleted_at_once, FOLDS_IN_READS, first=22),
    Mutant("an import is a generation of the index", _index_kept, IMPORTS),
    Mutant("loaded is read before chunks", _loaded_after_chunks, BUSY, first=45),
    Mutant("loaded reaches memory", _position_not_checked, STARTS, first=28),
    Mutant("emitted_through reaches coverage", _emitted_not_checked, STARTS, first=8),
    Mutant("held late samples rank by offset", _late_has_no_order, first=15),
    Mutant("coverage is the end of a dropped slice", _coverage_below_the_slice_end, EDGES_OF_DROPS, first=66),
    Mutant("a window has its last millisecond", _window_ends_early, EDGES, first=58),
    Mutant("a step ends where the next begins", _steps_begin_early, EDGES, first=6),
    Mutant("samples reach the first step of a store", _samples_end_before_the_steps, STEPS, first=25),
    Mutant("history answers up to coverage", _seam_below_coverage, EDGES),
    Mutant("joined requests keep their order", _joined_backwards, WRITES, first=1),
    Mutant("the applied offset is of before the gather", _applied_after_the_gather, NEW_IN_READS, first=1),
    Mutant("a snapshot holds the holes", _snapshot_without_holes, DAMAGED, first=22),
    Mutant("a snapshot holds its last record", _snapshot_without_last, SNAPSHOTS),
    Mutant("a job ends once every querier has looked", _job_ends_unseen, IMPORTS_BETWEEN_READS, first=1),
    Mutant("a range selector has its first millisecond", _range_without_its_first, QUERIES),
    Mutant("history's series are listed", _series_of_memory_alone, LISTINGS, first=5),
    Mutant("history's labels are listed", _labels_of_memory_alone, LISTINGS, first=34),
    Mutant("a watcher resumes after its last record", _watch_from_the_last, WATCHERS),
    Mutant("a read waits for the records of its tokens", _after_not_waited_for, QUERIES, first=1),
    Mutant("a store names corrupt records", _corrupt_without_hole, DAMAGED, first=22),
    Mutant("a store names unknown series", _unknown_without_hole, FORGOTTEN, first=2),
    Mutant("the chunk stage names corrupt records", _corrupt_not_written, DAMAGED, first=4),
    Mutant("the chunk stage names unknown series", _unknown_not_written, FORGOTTEN),
    Mutant("a restore claims nothing", _restored_claim_at_once, BACKUPS, first=21),
    Mutant("a chunk that is no chunk is a hole", _not_loadable_without_hole, DEAD_LETTERS, first=2),
    Mutant("a chunk that is no chunk is a dead letter", _not_loadable_skipped, DEAD_LETTERS, first=2),
    Mutant("a rebuild begins with the first record of a window", _rebuilt_from_the_second, FROM_ZERO, first=4),
    Mutant("above the soft limit slices are dropped early", _soft_limit_ignored, TIGHT),
    Mutant("above the hard limit nothing is applied", _hard_limit_ignored, TIGHT, first=5),
    Mutant("a store without room is not ready", _ready_without_room, TIGHT, first=5),
    Mutant("derived steps end with their span", _derived_past_the_span, DOWNSAMPLED, first=27),
    Mutant("a span is recorded once it is loaded", _span_before_its_series, DOWNSAMPLED, first=93),
    Mutant("a backup is of one load of history", _backup_of_two_loads, BACKUPS, first=5),
    Mutant("queriers look before a job ends", _polled_rarely, IMPORTS_BETWEEN_READS),
    *(
        Mutant(rule, switch_off, DETAIL_PROFILES.get(rule.split()[1], DETAILED), first)
        for rule, (switch_off, first) in DETAIL_RULES.items()
    ),
)
