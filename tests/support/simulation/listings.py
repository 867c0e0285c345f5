"""Listings in a simulation: Series, LabelNames and LabelValues, each with all that has a sample in the range."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from support.simulation.oracle import Answered, Source, Violation, excused_by
from support.simulation.reads import SELECTORS, asked_offset, options_of, range_of, refused
from support.simulation.world import World
from tsdb.answer.spec import ReadOptions
from tsdb.client.read import label_names, label_values, series, series_groups
from tsdb.model.errors import TsdbError
from tsdb.model.labels import parse_labels
from tsdb.query.service import QuerierService
from tsdb.v1 import common_pb2

NAMES = ("__name__", "instance", "job")


@dataclass(frozen=True)
class Range:
    """Subject of a listing. start_ms, end_ms: None means everything in memory."""

    selector: str
    start_ms: int | None
    end_ms: int | None
    options: ReadOptions


def listings(world: World, rng: random.Random) -> None:
    """One listing of a random kind."""
    start_ms, end_ms = range_of(world, rng)
    asked = Range(rng.choice(list(SELECTORS)), start_ms, end_ms, options_of(world, rng))
    if rng.random() < 0.15:
        asked = Range(asked.selector, None, None, asked.options)
    for store in world.stores:
        store.poll()
    listing = rng.choice([_series, _series, _groups, _label_names, _label_values])
    with world.moving(rng):
        try:
            listing(world, rng.choice(world.queriers()), asked)
        except TsdbError as error:
            refused(world, asked, error, allow_holes=asked.options.allow_holes)
            return
    world.counts["listings"] += 1


def _series(world: World, service: QuerierService, asked: Range) -> None:
    call = series(asked.selector, start_ms=asked.start_ms, end_ms=asked.end_ms, options=asked.options)
    reader = call.reader()
    states: dict[int, common_pb2.PartitionState] = {}
    for message in service.Series(call.request, world.caller()):  # type: ignore[arg-type]  # Made by the client.
        states.update((state.partition, state) for state in message.header.partitions)
        reader.add(message)
    found = {one.series_id: one for one in reader.finish()}
    for one in found.values():
        source = world.oracle.sources.get(one.series_id)
        if source is None or source.canonical != one.canonical or source.partition != one.partition:
            raise Violation(f"{asked} lists {one}, which nobody wrote")
    for source, times_ms in _must(world, asked, states.values()):
        if source.series_id not in found:
            raise Violation(f"{asked} lacks {source.canonical!r}, with samples at {times_ms}; {states}")
        one, coverage_ms = found[source.series_id], states[source.partition].coverage_start_ms
        held = [ts_ms for ts_ms in times_ms if ts_ms >= coverage_ms]
        seen = one.first_seen_ms, one.last_seen_ms
        # A store that went on meanwhile may have dropped them: a listing has no times of one moment.
        if held and not world.moved and (None in seen or seen[0] > min(held) or seen[1] < max(held)):  # type: ignore[operator]
            raise Violation(f"{asked}: {source.canonical!r} has samples at {held}, seen {seen}")


def _groups(world: World, service: QuerierService, asked: Range) -> None:
    call = series_groups(
        asked.selector, ["__name__"], start_ms=asked.start_ms, end_ms=asked.end_ms, options=asked.options
    )
    reader = call.reader()
    states: dict[int, common_pb2.PartitionState] = {}
    for message in service.Series(call.request, world.caller()):  # type: ignore[arg-type]  # Made by the client.
        states.update((state.partition, state) for state in message.header.partitions)
        reader.add(message)
    found = {one.values[0]: one.series for one in reader.finish()}
    must = Counter(_labels(source)["__name__"] for source, _ in _must(world, asked, states.values()))
    most = Counter(_labels(source)["__name__"] for source in filter(SELECTORS[asked.selector], world.sources))
    if any(found.get(name, 0) < count for name, count in must.items()) or any(
        count > most[name] for name, count in found.items()
    ):
        raise Violation(f"{asked}: {found}, at least {must}, at most {most}")


def _label_names(world: World, service: QuerierService, asked: Range) -> None:
    call = label_names(asked.selector, start_ms=asked.start_ms, end_ms=asked.end_ms, options=asked.options)
    answer = service.LabelNames(call.request, world.caller())  # type: ignore[arg-type]  # Made by the client.
    must = NAMES if any(True for _ in _must(world, asked, answer.header.partitions)) else ()
    if not set(must) <= set(answer.names) or not set(answer.names) <= set(NAMES):
        raise Violation(f"{asked}: label names {answer.names}, at least {must}")


def _label_values(world: World, service: QuerierService, asked: Range) -> None:
    call = label_values("instance", asked.selector, start_ms=asked.start_ms, end_ms=asked.end_ms, options=asked.options)
    answer = service.LabelValues(call.request, world.caller())  # type: ignore[arg-type]  # Made by the client.
    must = {_labels(source)["instance"] for source, _ in _must(world, asked, answer.header.partitions)}
    most = {_labels(source)["instance"] for source in filter(SELECTORS[asked.selector], world.sources)}
    if not must <= set(answer.values) <= most:
        raise Violation(f"{asked}: values {answer.values}, at least {must}, at most {most}")


def _must(
    world: World, asked: Range, states: Iterable[common_pb2.PartitionState]
) -> Iterator[tuple[Source, list[int]]]:
    """Series that the answer must have, with the times of their samples in the range."""
    by_partition = {state.partition: state for state in states}
    if by_partition.keys() != set(range(world.partitions)):
        raise Violation(f"{asked} is answered for partitions {sorted(by_partition)}")
    if asked.start_ms is None and world.moved:
        return  # Memory may have dropped series meanwhile.
    for source in filter(SELECTORS[asked.selector], world.sources):
        state = by_partition[source.partition]
        start_ms = state.coverage_start_ms if asked.start_ms is None else asked.start_ms
        end_ms = 1 << 62 if asked.end_ms is None else asked.end_ms
        answered = Answered.of(state, start_ms, asked_offset(asked.options, source.partition))
        # A listing of all that memory holds is never refused: its header names the holes.
        excused = excused_by(state.holes if asked.options.allow_holes or asked.start_ms is None else ())
        times_ms = [
            ts_ms
            for ts_ms, entries in world.oracle.entries[source.partition][source.series_id].items()
            if start_ms <= ts_ms < end_ms
            and any(one.sure and not one.lost and one.order <= answered.applied_offset for one in entries)
            and not excused(source, ts_ms)
        ]
        if times_ms:
            yield source, times_ms


def _labels(source: Source) -> dict[str, str]:
    return dict(parse_labels(source.canonical))
