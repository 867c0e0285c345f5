"""Dataset: an hour of samples of a few series, the same in every run, made so that versions of Prometheus agree on it.

No sample lies on a boundary of a window that the generator asks for: Prometheus 3.0 made windows open on the left. Each
series has its own part of a second, and the queries have others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tsdb.model.histograms import CUSTOM_BOUNDS, GAUGE
from tsdb.model.stale import STALE
from tsdb.rules.unit_tests.histograms import HistogramValue
from tsdb.rules.unit_tests.notation import Labels, labels_of
from tsdb.selector.selectors import METRIC_NAME

BASE_MS = 1_699_999_200_000  # A whole hour, so that multiples of a step lie at the same places after any other hour.
GRID_MS = 15_000
LENGTH_MS = 60 * 60_000
GRID_REMAINDER_MS = 500
JITTER_REMAINDER_MS = 411
SEED = 17
BOUNDS = ("0.1", "0.5", "1", "2.5", "+Inf")
BOTH = [{"job": job, "instance": instance} for job, instance in product(("api", "web"), ("a:9100", "b:9100"))]

Points = list[tuple[int, float]]
MixedPoints = list[tuple[int, float | HistogramValue]]


@dataclass(frozen=True, slots=True)
class StoredSamples:
    """samples: time in milliseconds and value, ascending."""

    labels: Labels
    samples: Points


@dataclass(frozen=True, slots=True)
class StoredHistograms:
    """samples: time in milliseconds and value, ascending, floats and native histograms."""

    labels: Labels
    samples: MixedPoints


def dataset(base_ms: int = BASE_MS) -> list[StoredSamples]:
    """All series. base_ms: a whole hour, at which the samples begin."""
    # In the order of their labels, in which a head gives them back, so that ties are broken alike.
    return sorted(_Maker(base_ms).everything(), key=lambda one: one.labels)


class _Maker:
    def __init__(self, base_ms: int) -> None:
        self._base_ms = base_ms
        self._random = random.Random(SEED)

    def everything(self) -> Iterator[StoredSamples]:
        yield from self._counters()
        yield from self._gauges()
        yield from self._odd_gauges()
        yield from self._histograms()
        yield from self._short_lived()
        yield from self._joined()

    def _counters(self) -> Iterator[StoredSamples]:
        for labels, code, method in product(BOTH, ("200", "404", "500"), ("get", "post")):
            if (labels["job"], code, method) != ("web", "500", "post"):
                more = {**labels, "code": code, "method": method}
                yield self._series("requests_total", more, self._counter(50_000, 40, restarts=0.01))
        for labels in BOTH:
            yield self._series("errors_total", labels, self._counter(90_000, 3, restarts=0.02), jitter=True)
        # These begin at 0 and come back to it.
        for labels in BOTH[:3]:
            yield self._series("fresh_total", labels, self._counter(0, 1, restarts=0.03), first=40)

    def _gauges(self) -> Iterator[StoredSamples]:
        chance = self._random
        for labels in BOTH:
            yield self._series("memory_bytes", labels, self._walk(5e8, 1e6))
            yield self._series("queue_length", labels, lambda: float(chance.choice((0, 0, 1, 2, 2, 5))))
            yield self._series("up", labels, lambda: float(chance.random() > 0.2), jitter=True)
        for zone, floor in product(("north", "south"), ("1", "2", "10")):
            yield self._series("temperature_celsius", {"zone": zone, "floor": floor}, self._walk(-2, 0.5), jitter=True)
        yield self._series("constant", {}, lambda: 42.0)
        for city in ("rome", "oslo"):
            yield self._series("clock_seconds", {"city": city}, lambda: float(chance.randrange(-(10**10), 10**10)))

    def _odd_gauges(self) -> Iterator[StoredSamples]:
        chance = self._random
        kinds: dict[str, Callable[[], float]] = {
            "nan": lambda: math.nan,
            "inf": lambda: math.inf,
            "minus_inf": lambda: -math.inf,
            "zero": lambda: chance.choice((0.0, -0.0)),
            "mixed": lambda: chance.choice((math.nan, math.inf, -math.inf, 0.0, -1.5, 2.0, 3.0)),
            "some_nan": lambda: chance.choice((math.nan, 1.0, 2.0, 2.0, -3.0)),
        }
        for kind, value in kinds.items():
            yield self._series("odd", {"kind": kind}, value)
        # No subnormal numbers: Go's logarithm of them is wrong on amd64.
        for size, values in {"huge": (1e300, -1e300, 1.7e308), "tiny": (1e-300, -5e-300, 3e-305)}.items():
            yield self._series("extreme", {"size": size}, self._one_of(*values))

    def _histograms(self) -> Iterator[StoredSamples]:
        for labels in BOTH:
            yield from self._histogram("latency_seconds", labels)
        for bound, share in zip(BOUNDS, (0.3, 0.2, 0.9, 0.8, 1.0), strict=True):
            counter = self._counter(round(5_000 * share), 40 * share)
            yield self._series("skewed_seconds_bucket", {"job": "api", "le": bound}, counter)
        for bound in ("0.5", "1", "abc", "+Inf", ""):
            yield self._series("broken_seconds_bucket", {"job": "api", "le": bound}, self._counter(5_000, 10))
        for bound in ("1", "1.0", "2", "+Inf"):
            yield self._series("double_seconds_bucket", {"job": "web", "le": bound}, self._counter(5_000, 10))
        for bound in ("0.5", "1"):
            yield self._series("endless_seconds_bucket", {"job": "web", "le": bound}, self._counter(5_000, 10))
        for bound, count in (("-5", 2.0), ("0", 4.0), ("5", 4.0), ("+Inf", 8.0)):
            yield self._series("change_bucket", {"zone": "north", "le": bound}, self._one_of(count))

    def _histogram(self, name: str, labels: dict[str, str]) -> Iterator[StoredSamples]:
        # They begin far from 0, to which versions extrapolate differently.
        steps = self._steps(0)
        counts, rows = [5_000] * len(BOUNDS), []
        for _ in steps:
            for index in range(len(BOUNDS)):
                counts[index] += self._random.randrange(6)
            rows.append([float(sum(counts[: index + 1])) for index in range(len(BOUNDS))])
        for index, bound in enumerate(BOUNDS):
            points = [(ts, row[index]) for ts, row in zip(steps, rows, strict=True)]
            yield _stored(f"{name}_bucket", {**labels, "le": bound}, points)
        yield _stored(f"{name}_count", labels, [(ts, row[-1]) for ts, row in zip(steps, rows, strict=True)])
        yield _stored(f"{name}_sum", labels, [(ts, row[-1] * 0.75) for ts, row in zip(steps, rows, strict=True)])

    def _short_lived(self) -> Iterator[StoredSamples]:
        """Series that end with a stale marker, pause for longer than the lookback, or just stop."""
        for index, labels in enumerate(BOTH):
            points = self._points(self._walk(10 * index, 1), first=20 * index)
            yield _stored("flapping", labels, self._with_pauses(points, ends_stale=index % 2 == 0))
        for index, pod in enumerate(("one", "two", "three")):
            points = self._points(self._counter(5_000, 5), first=60 * index)[:70]
            yield _stored("pod_restarts_total", {"pod": pod}, [*points, (points[-1][0] + GRID_MS, STALE)])

    def _with_pauses(self, points: Points, *, ends_stale: bool) -> Points:
        found: Points = []
        at = 0
        while at < len(points):
            live = self._random.randrange(8, 40)
            found += points[at : at + live]
            at += live + self._random.choice((2, 10, 24))
            if ends_stale:
                found.append((found[-1][0] + GRID_MS, STALE))
        return found

    def _joined(self) -> Iterator[StoredSamples]:
        """Series that describe others, series with the labels of others, and labels with odd values."""
        for index, labels in enumerate(BOTH):
            yield self._series("build_info", {**labels, "version": f"1.{index * 3}", "branch": "main"}, lambda: 1.0)
        for labels, region in product(BOTH, ("eu", "us")):
            # One follows the other: the region changes at half time.
            points = self._points(lambda: 1.0)
            half = len(points) // 2
            part = points[:half] if region == "eu" else points[half:]
            stale = [(part[-1][0] + GRID_MS, STALE)] if region == "eu" else []
            yield _stored("target_info", {**labels, "region": region}, part + stale)
        for name, labels in product(("twin_a", "twin_b"), BOTH):
            yield self._series(name, labels, self._walk(3, 1))
        for number, version in enumerate(("1.9", "1.10", "v2", "1.10rc1", 'é"x\\', "a b")):
            yield self._series("release", {"version": version, "job": "api"}, self._one_of(float(number % 3)))

    def _series(
        self, name: str, labels: dict[str, str], value: Callable[[], float], *, first: int = 0, jitter: bool = False
    ) -> StoredSamples:
        return _stored(name, labels, self._points(value, first=first, jitter=jitter))

    def _points(self, value: Callable[[], float], *, first: int = 0, jitter: bool = False) -> Points:
        return [(ts, value()) for ts in self._steps(first, jitter=jitter)]

    def _steps(self, first: int, *, jitter: bool = False) -> list[int]:
        """Times of a series. With jitter they are irregular, and some are missing."""
        count = LENGTH_MS // GRID_MS
        if not jitter:
            return [self._base_ms + index * GRID_MS + GRID_REMAINDER_MS for index in range(first, count)]
        return [
            self._base_ms + index * GRID_MS + self._random.randrange(14) * 1000 + JITTER_REMAINDER_MS
            for index in range(first, count)
            if self._random.random() > 0.1
        ]

    def _counter(self, start: int, step_max: float, *, restarts: float = 0.0) -> Callable[[], float]:
        value = float(start + self._random.randrange(100))
        if start == 0:
            value = 0.0

        def following() -> float:
            nonlocal value
            reset = self._random.random() < restarts
            value = float(start) if reset else value + round(self._random.random() * step_max)
            return value

        return following

    def _walk(self, start: float, step: float) -> Callable[[], float]:
        value = start

        def following() -> float:
            nonlocal value
            value += self._random.randrange(-4, 5) * step
            return value

        return following

    def _one_of(self, *values: float) -> Callable[[], float]:
        return lambda: self._random.choice(values)


def _stored(name: str, labels: dict[str, str], samples: Points) -> StoredSamples:
    return StoredSamples(labels_of({METRIC_NAME: name, **labels}), samples)


def native_dataset(base_ms: int = BASE_MS) -> list[StoredHistograms]:
    """Series with native histograms, for servers that store them. base_ms: as for `dataset`."""
    return sorted(_NativeMaker(base_ms).everything(), key=lambda one: one.labels)


class _NativeMaker:
    """Counters of several schemas, gauges, custom bounds, negative buckets, and a series that changes its kind."""

    def __init__(self, base_ms: int) -> None:
        self._base_ms = base_ms
        self._random = random.Random(SEED)

    def everything(self) -> Iterator[StoredHistograms]:
        for number, labels in enumerate(BOTH):
            yield self._counter("native_latency", labels, schema=(0, 3)[number % 2], restarts=0.01)
            yield self._counter("native_wide", labels, schema=number - 1, sides=("positive", "negative"))
            yield self._counter("native_custom", labels, schema=CUSTOM_BOUNDS, bounds=(0.1, 0.5, 1.0 + number // 2))
            yield self._gauge("native_gauge", labels)
        floats = [(ts_ms, float(number)) for number, (ts_ms, _) in enumerate(self._counter("x", {}, schema=1).samples)]
        for labels in BOTH:
            histograms = self._counter("native_mixed", labels, schema=1).samples
            edge = self._random.randrange(60, 180)
            mixed = [*histograms[:edge], *floats[edge : edge + 40], *histograms[edge + 40 :]]
            yield StoredHistograms(labels_of({METRIC_NAME: "native_mixed", **labels}), mixed)

    def _times(self) -> Iterator[int]:
        yield from range(self._base_ms + GRID_REMAINDER_MS, self._base_ms + LENGTH_MS, GRID_MS)

    def _counter(
        self,
        name: str,
        labels: dict[str, str],
        *,
        schema: int,
        restarts: float = 0.0,
        bounds: tuple[float, ...] = (),
        sides: Sequence[str] = ("positive",),
    ) -> StoredHistograms:
        chance = self._random
        found: MixedPoints = []
        counts: dict[str, dict[int, float]] = {side: {} for side in sides}
        total, zeros = 0.0, 0.0
        for ts_ms in self._times():
            if chance.random() < restarts:
                counts, total, zeros = {side: {} for side in sides}, 0.0, 0.0
            for side in sides:
                for _ in range(chance.randrange(6)):
                    index = chance.randrange(len(bounds) + 1) if bounds else chance.randrange(-3, 9)
                    counts[side][index] = counts[side].get(index, 0.0) + 1.0
                    total += chance.choice((0.25, 1.5, 3.0))
            zeros += 0.0 if bounds else float(chance.randrange(2))
            count = zeros + sum(sum(one.values()) for one in counts.values())
            kept = [dict(sorted(counts.get(side, {}).items())) for side in ("positive", "negative")]
            threshold = 0.0 if bounds else 0.001
            found.append((ts_ms, HistogramValue(schema, count, total, zeros, threshold, bounds, kept[0], kept[1])))
        return StoredHistograms(labels_of({METRIC_NAME: name, **labels}), found)

    def _gauge(self, name: str, labels: dict[str, str]) -> StoredHistograms:
        chance = self._random
        found: MixedPoints = []
        for ts_ms in self._times():
            positive = {index: float(chance.randrange(9)) / 4 for index in range(chance.randrange(-2, 1), 4)}
            found.append((ts_ms, HistogramValue(2, sum(positive.values()), 7.5, 0.0, 0.001, (), positive, hint=GAUGE)))
        return StoredHistograms(labels_of({METRIC_NAME: name, **labels}), found)
