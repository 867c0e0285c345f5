"""Graph: draws the lines of an expression over a range, with statistics of all their values.

A graph has a range, and steps that do not move while the range does.

Reduction leaves fewer points of a line, for the eye. The lowest and the highest value of each stretch of steps stay, so
no peak is lost. Numbers beside the graph come from all values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from tsdb.api.prometheus.answer import shown_annotations
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.json.rows import valid_text
from tsdb.api.prometheus.pages.query import range_result
from tsdb.api.prometheus.parameters import POINTS_MAX, QuerySteps, integer
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import parse_duration
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.evaluate.vectors.labels import LabelSets
from tsdb.promql.syntax.literals import shown_duration
from tsdb.promql.syntax.numbers import shown_g
from tsdb.selector.tokens import quoted
from tsdb.ui.answers.evidence import evidence
from tsdb.ui.answers.exemplars import drawn_exemplars
from tsdb.ui.answers.heatmap import AddedHistograms, added_histograms, with_quantiles
from tsdb.ui.answers.variables import replaced
from tsdb.ui.link import TITLE_CHARS_MAX, range_ms
from tsdb.ui.pages.page import PageCall

POINTS_MIN = 16  # Points of a line, however many lines there are.

ALL_ALERTS = "*"
ALERTS_MAX = 50  # Series of alerts whose times are named.

STEP_MS_MIN = 1000
STEPS = 480  # About one point for two pixels of a wide graph.
STEPS_ASKED_MAX = 2000
_NICE_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)


def graph(asked: PageCall) -> bytes:
    """Answers `/ui/graph`. Raises the errors of `query_range`."""
    call = asked.call
    start_ms, end_ms = times_of(call)
    steps = steps_asked(call, start_ms, end_ms)
    query = replaced(call.form.get("query"), steps.step_ms, end_ms - start_ms)
    evaluated = range_result(call, query.text, steps, finds_newest=True)
    block = evaluated.found.value
    assert isinstance(block, Block), "a range query has a vector"
    added = added_histograms(block)
    if added is not None:
        block = with_quantiles(block, added)
    heatmap = added.heatmap() if added is not None and call.form.flag("heatmap") else None
    series_total = len(block)
    block = block.take(np.arange(min(series_total, asked.options.series_max)))
    points = max(POINTS_MIN, asked.options.points_max // max(1, len(block)))
    reduce = thinned if call.form.flag("stack") else reduced
    drawn = reduce(block.values, block.present, points)
    exemplars, notes = drawn_exemplars(asked, query.text, start_ms, end_ms)
    answer = {
        "status": "success",
        "start_ms": start_ms,
        "end_ms": end_ms,
        "first_ms": steps.start_ms,
        "step_ms": steps.step_ms,
        "series_total": series_total,
        "series": labels_of(block.labels),
        "is_reduced": drawn.at.shape[1] < block.steps,
        "at": np.ascontiguousarray(drawn.at) if drawn.at.shape[1] < block.steps else None,
        "values": np.ascontiguousarray(drawn.values),
        "earlier": _earlier(call, query.text, steps, block, drawn),
        "heatmap": heatmap and heatmap.answer(),
        "alerts": _alerts(call, steps),
        "exemplars": exemplars,
        "statistics": _statistics(block.values, block.present),
        "warnings": texts(evaluated.found.warnings, "warning"),
        "infos": [*query.notes, *_notes_of(added), *map(valid_text, notes), *texts(evaluated.found.infos, "info")],
        "evidence": evidence(asked, evaluated, start_ms, end_ms),
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def _notes_of(added: AddedHistograms | None) -> list[str]:
    """Notes about the native histograms of the answer."""
    if added is None:
        return []
    of = f"the sum of {added.series} native histograms" if added.series > 1 else "a native histogram"
    return [f"The lines are quantiles of {of}; the axis `heatmap of buckets` shows its buckets.", *added.notes]


def _earlier(call: ApiCall, query: str, steps: QuerySteps, block: Block, drawn: Drawn) -> dict[str, Any] | None:
    """The values of the drawn points a time `compare` before, of the series with the same labels. left_out: series that
    were there then alone. None without `compare`. Raises BadParameter and the errors of `query_range`."""
    text = call.form.get("compare")
    if not text:
        return None
    try:
        before_ms = range_ms(text)
    except ValueError as error:
        raise BadParameter("compare", error) from None
    then = QuerySteps(steps.start_ms - before_ms, steps.end_ms - before_ms, steps.step_ms)
    result = range_result(call, query, then).found
    found = result.value
    assert isinstance(found, Block), "a range query has a vector"
    added = added_histograms(found)
    if added is not None:
        found = with_quantiles(found, added)
    rows = {frozenset(found.labels.row(row).items()): row for row in range(len(found))}
    values = np.full((len(block), block.steps), np.nan)
    matched = 0
    for index in range(len(block)):
        row = rows.get(frozenset(block.labels.row(index).items()))
        if row is not None:
            matched += 1
            values[index] = np.where(found.present[row], found.values[row], np.nan)
    points = np.ascontiguousarray(np.take_along_axis(values, drawn.at, axis=1))
    return {"before": text, "before_ms": before_ms, "values": points, "left_out": len(found) - matched}


def _alerts(call: ApiCall, steps: QuerySteps) -> dict[str, Any] | None:
    """The times at which alerts fired: those of the name `alerts`, or all for ALL_ALERTS. strips: times at which any of
    them did. series: labels and times of the first ALERTS_MAX. None without `alerts`. Raises BadParameter and the
    errors of `query_range`."""
    wanted = call.form.get("alerts")
    if not wanted:
        return None
    if len(wanted) > TITLE_CHARS_MAX:
        raise BadParameter("alerts", f"it has {len(wanted)} characters; the limit is {TITLE_CHARS_MAX}")
    named = "" if wanted == ALL_ALERTS else f",alertname={quoted(wanted)}"
    firing = f'ALERTS{{alertstate="firing"{named}}}'
    # The second part has the alerts that fired between two steps alone.
    query = f"{firing} or last_over_time({firing}[{shown_duration(steps.step_ms)}])"
    block = range_result(call, query, steps).found.value
    assert isinstance(block, Block), "a range query has a vector"
    shown = block.take(np.arange(min(len(block), ALERTS_MAX)))
    return {
        "strips": _stretches(np.logical_or.reduce(block.present), steps),
        "series": [
            {"labels": labels, "times": _stretches(present, steps)}
            for labels, present in zip(labels_of(shown.labels), shown.present, strict=True)
        ],
        "series_total": len(block),
    }


def _stretches(present: NDArray[np.bool_], steps: QuerySteps) -> list[tuple[int, int]]:
    """The stretches of steps without a gap, each from half a step before its first to half a step after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], present, [False])).astype(np.int8)))
    half_ms = steps.step_ms // 2
    times_ms = (steps.start_ms + edges * steps.step_ms - half_ms).reshape(-1, 2).tolist()
    return [(start_ms, end_ms) for start_ms, end_ms in times_ms]


def labels_of(labels: LabelSets) -> list[dict[str, str]]:
    """The labels of each series. Text that is not UTF-8 is replaced."""
    rows = [labels.row(row) for row in range(len(labels))]
    return [{valid_text(name): valid_text(value) for name, value in row.items()} for row in rows]


def texts(annotations: tuple[str, ...], kind: str) -> list[str]:
    """Annotations as the API shows them."""
    return [valid_text(one) for one in shown_annotations(kind, annotations)]


def _statistics(values: NDArray[np.float64], present: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Last, lowest, highest and mean value of each series as text, over all steps that have a value."""
    return [_of_series(row[here]) for row, here in zip(values, present, strict=True)]


def _of_series(values: NDArray[np.float64]) -> dict[str, Any]:
    numbers = values[~np.isnan(values)]
    if not len(values):
        return {"last": "", "min": "", "max": "", "mean": ""}
    if not len(numbers):
        return {"last": "NaN", "min": "NaN", "max": "NaN", "mean": "NaN"}
    with np.errstate(all="ignore"):
        mean = float(numbers.mean())
    return {
        "last": shown_g(float(values[-1])),
        "min": shown_g(float(numbers.min())),
        "max": shown_g(float(numbers.max())),
        "mean": shown_g(mean),
    }


def times_of(call: ApiCall) -> tuple[int, int]:
    """Range (start_ms, end_ms) of a request, from `start` and `end`, or from `range` before now. Raises
    BadParameter."""
    if call.form.get("start") and call.form.get("end"):
        start_ms, end_ms = _integer(call, "start"), _integer(call, "end")
        if end_ms <= start_ms:
            raise BadParameter("end", "the range ends before it begins")
        return start_ms, end_ms
    try:
        length_ms = range_ms(call.form.get("range"))
    except ValueError as error:
        raise BadParameter("range", error) from None
    now_ms = call.sources.clock.now_ms()
    return now_ms - length_ms, now_ms


def steps_of(start_ms: int, end_ms: int, points: int = STEPS) -> QuerySteps:
    """Steps of a nice length, at multiples of it, so that equal times of two graphs have equal values."""
    wanted_ms = max(STEP_MS_MIN, (end_ms - start_ms) // max(1, min(points, POINTS_MAX)))
    day_ms = 86_400_000
    step_ms = next((1000 * one for one in _NICE_S if 1000 * one >= wanted_ms), -(-wanted_ms // day_ms) * day_ms)
    return QuerySteps(
        -(-start_ms // step_ms) * step_ms, max(end_ms // step_ms, -(-start_ms // step_ms)) * step_ms, step_ms
    )


def steps_asked(call: ApiCall, start_ms: int, end_ms: int) -> QuerySteps:
    """The steps of a request: of the length `step`, at multiples of it, or of a nice length. Raises BadParameter."""
    text = call.form.get("step")
    if not text:
        return steps_of(start_ms, end_ms, points_of(call))
    try:
        step_ms = parse_duration(text)
    except InvalidRequest:
        raise BadParameter("step", f"{text[:40]!r} is no step, such as 15s") from None
    first_ms, last_ms = -(-start_ms // step_ms) * step_ms, end_ms // step_ms * step_ms
    count = (last_ms - first_ms) // step_ms + 1
    if count > POINTS_MAX:
        shortest = shown_duration(-(-(end_ms - start_ms) // (POINTS_MAX - 1) // 1000) * 1000 + 1000)
        raise BadParameter(
            "step", f"{text} makes {count:,} steps; the limit is {POINTS_MAX:,}: take at least {shortest}, or no step"
        )
    return QuerySteps(first_ms, max(first_ms, last_ms), step_ms)


def points_of(call: ApiCall) -> int:
    """About how many steps the caller wants: `points`. Raises BadParameter."""
    wanted = _integer(call, "points") if call.form.get("points") else STEPS
    return max(1, min(wanted, STEPS_ASKED_MAX))


def _integer(call: ApiCall, name: str) -> int:
    try:
        found = integer(call.form.get(name))
    except ValueError as error:
        raise BadParameter(name, error) from None
    if abs(found) > 1 << 53:
        raise BadParameter(name, f"{found} is no time in milliseconds since 1970")
    return found


@dataclass(frozen=True, slots=True)
class Drawn:
    """Points of lines. at: int64 (series, points), indexes of steps, ascending in each row. values: float64 (series,
    points), NaN where a line has a gap."""

    at: NDArray[np.int64]
    values: NDArray[np.float64]


def reduced(values: NDArray[np.float64], present: NDArray[np.bool_], points: int) -> Drawn:
    """At most `points` points of each series, at least 2. values, present: (series, steps)."""
    series, steps = values.shape
    gaps = np.where(present, values, np.nan)
    if steps <= max(points, 2):
        return Drawn(np.broadcast_to(np.arange(steps), (series, steps)), gaps)
    size = -(-steps // max(points // 2, 1))
    stretches = -(-steps // size)
    padded = np.full((series, stretches * size), np.nan)
    padded[:, :steps] = gaps
    parts = padded.reshape(series, stretches, size)
    absent = np.isnan(parts)
    lowest = np.where(absent, np.inf, parts).argmin(axis=2)
    highest = np.where(absent, -np.inf, parts).argmax(axis=2)
    # An empty stretch has its first step twice. Only the last stretch is padded, and never at its first step.
    pair = np.sort(np.stack((lowest, highest), axis=2), axis=2)
    at = (pair + (np.arange(stretches) * size)[None, :, None]).reshape(series, stretches * 2)
    return Drawn(at, np.take_along_axis(padded, at, axis=1))


def thinned(values: NDArray[np.float64], present: NDArray[np.bool_], points: int) -> Drawn:
    """At most `points` points, the same steps of every series: stacked lines are added step by step."""
    series, steps = values.shape
    kept = np.arange(0, steps, max(1, -(-steps // max(points, 1))))
    gaps = np.where(present[:, kept], values[:, kept], np.nan)
    return Drawn(np.broadcast_to(kept, (series, len(kept))), gaps)
