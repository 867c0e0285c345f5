"""Plan: for each (pack, window) of history, the rows to fold and the covered rows to delete. Runs in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from spark_backfill.failures import quoted_errors
from spark_backfill.jobs.merge_late.read_backs import Fold
from spark_backfill.packs import PackSpan
from spark_backfill.places import Places
from tsdb.codec.chunk.cover import Cover
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history.fold import foldable, fragments_of, standing, whole_covers
from tsdb.history.interface import ChunkRow, ChunkStore, WindowRange
from tsdb.model.errors import CorruptData, UnknownVersion


@dataclass(frozen=True, slots=True)
class Rule:
    """A window is folded when it has more than fragments_max fragments that no fold covers, or more than one fragment
    and its end is at or before old_ms.

    span: windows to check. deletable: folds read back long enough ago. part_bytes_max: size limit of a row.
    """

    span: WindowRange
    window_ms: int
    part_bytes_max: int
    fragments_max: int
    old_ms: int
    deletable: frozenset[Fold] = frozenset()


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Plan of one (pack, window). fragments: number with a row. left: number that no complete fold covers.

    fold: keys to fold; empty: no fold. seen: orders of complete folds whose covered rows still exist. deletes: keys of
    rows that may be deleted, by the order of such a fold. trouble: reason why the window cannot be planned.
    """

    pack_id: int
    partition: int
    window_start_ms: int
    fragments: int
    left: int
    fold: tuple[ChunkKey, ...] = ()
    seen: tuple[int, ...] = ()
    deletes: tuple[tuple[int, tuple[ChunkKey, ...]], ...] = ()
    trouble: str = ""

    @property
    def idle(self) -> bool:
        """Whether the window needs no work, now or in a later run."""
        return not (self.fold or self.seen or self.trouble)


def plan_packs(places: Places, rule: Rule, packs: Iterable[PackSpan]) -> Iterator[WindowPlan]:
    """Plans of all windows of these packs that have a row."""
    with quoted_errors(), places.open_history() as history:
        for pack in packs:
            listed = history.keys(pack.pack_id, pack.windows(rule.span, rule.window_ms))
            for _, keys in groupby(listed, key=lambda key: key.window_start_ms):
                yield plan_window(history, rule, pack.partition, list(keys))


def plan_window(history: ChunkStore, rule: Rule, partition: int, keys: Sequence[ChunkKey]) -> WindowPlan:
    """Plan from the keys of one (pack, window), at least one. Reads chunks only when a fold is beside other rows."""
    place = keys[0].pack_id, partition, keys[0].window_start_ms
    fragments = len(fragments_of(keys))
    try:
        covers = _covers(history, keys) if fragments > 1 else {}
    except (CorruptData, UnknownVersion) as error:
        return WindowPlan(*place, fragments, fragments, trouble=error.reason)
    there = set(keys)
    seen = {order: there.intersection(cover.keys) for order, cover in covers.items()}
    deletes = {order: covered for order, covered in seen.items() if (partition, order) in rule.deletable and covered}
    left = standing(keys, covers)
    staying = there.difference(*deletes.values())
    return WindowPlan(
        *place,
        fragments,
        len(fragments_of(left)),
        foldable(staying, rule.part_bytes_max) if _is_due(rule, place[2], left) else (),
        tuple(sorted(order for order, covered in seen.items() if covered)),
        tuple((order, _sorted(covered)) for order, covered in sorted(deletes.items())),
    )


def window_rows(history: ChunkStore, pack_id: int, window_start_ms: int) -> dict[ChunkKey, ChunkRow]:
    """All rows of one (pack, window)."""
    pieces = history.read([pack_id], WindowRange(window_start_ms, window_start_ms + 1))
    return {row.key: row for piece in pieces for row in piece}


def _is_due(rule: Rule, window_start_ms: int, left: set[ChunkKey]) -> bool:
    fragments = len(fragments_of(left))
    is_old = window_start_ms + rule.window_ms <= rule.old_ms
    return fragments > rule.fragments_max or (is_old and fragments > 1)


def _covers(history: ChunkStore, keys: Sequence[ChunkKey]) -> dict[int, Cover]:
    firsts = {key for key in keys if key.kind == Kind.FOLDED and key.part == 0}
    if not firsts:
        return {}
    rows = window_rows(history, keys[0].pack_id, keys[0].window_start_ms)
    return whole_covers(keys, [row for key, row in rows.items() if key in firsts])


def _sorted(keys: Iterable[ChunkKey]) -> tuple[ChunkKey, ...]:
    return tuple(sorted(keys, key=lambda key: (key.order, key.kind, key.part)))
