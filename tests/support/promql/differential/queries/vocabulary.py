"""Vocabulary: metrics, labels and values of the dataset that queries may name, and a deck to draw them from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Generic, TypeVar

INSTANCE = ("job", "instance")
COUNTERS = {
    "requests_total": (*INSTANCE, "code", "method"),
    "errors_total": INSTANCE,
    "fresh_total": INSTANCE,
    "pod_restarts_total": ("pod",),
    "latency_seconds_count": INSTANCE,
    "latency_seconds_sum": INSTANCE,
}
GAUGES = {
    "memory_bytes": INSTANCE,
    "queue_length": INSTANCE,
    "up": INSTANCE,
    "temperature_celsius": ("zone", "floor"),
    "constant": (),
    "flapping": INSTANCE,
    "twin_a": INSTANCE,
    "twin_b": INSTANCE,
    "release": ("version", "job"),
    "clock_seconds": ("city",),
}
ODD = {"odd": ("kind",), "extreme": ("size",)}
HISTOGRAMS = {
    "latency_seconds": (*INSTANCE, "le"),
    "skewed_seconds": ("job", "le"),
    "broken_seconds": ("job", "le"),
    "endless_seconds": ("job", "le"),
    "double_seconds": ("job", "le"),
    "change": ("zone", "le"),
}
INFOS = {"build_info": (*INSTANCE, "version", "branch"), "target_info": (*INSTANCE, "region")}
BUCKETS = {f"{name}_bucket": labels for name, labels in HISTOGRAMS.items()}
NATIVE = dict.fromkeys(("native_latency", "native_wide", "native_custom", "native_gauge", "native_mixed"), INSTANCE)
LABELS_OF = {**COUNTERS, **GAUGES, **ODD, **BUCKETS, **INFOS, **NATIVE}
# Metrics with exactly one series for each job and instance, at most times.
BY_INSTANCE = (
    "errors_total",
    "memory_bytes",
    "queue_length",
    "up",
    "twin_a",
    "twin_b",
    "flapping",
    "build_info",
    "latency_seconds_sum",
)
VALUES = {
    "job": ("api", "web"),
    "instance": ("a:9100", "b:9100"),
    "code": ("200", "404", "500"),
    "method": ("get", "post"),
    "zone": ("north", "south"),
    "floor": ("1", "2", "10"),
    "kind": ("nan", "inf", "mixed"),
    "size": ("huge", "tiny"),
    "city": ("rome", "oslo"),
    "pod": ("one", "two", "three"),
    "le": ("0.5", "1", "+Inf"),
    "version": ("1.10", "1.3", "v2"),
    "branch": ("main",),
    "region": ("eu", "us"),
}
LABELS = tuple(VALUES)
PATTERNS = (
    "a.*",
    ".*",
    ".+",
    "api|web",
    "[a-z0-9].*",
    "(?i:API)",
    "",
    "2..|404",
    r"\\d+",
    "^a",
    "b:9100$",
    "1.*",
    "none",
)
NUMBERS = ("0", "1", "2", "-1", "0.5", "3.25", "100", "1e3", "0x1F", "1e-3", "-7.5", "1000000", ".5", "5.")
ODD_NUMBERS = ("NaN", "Inf", "-Inf", "1e308", "1e-308", "0.1", "1e15", "-0")

Item = TypeVar("Item")


class Deck(Generic[Item]):
    """Every item comes once before one comes again."""

    def __init__(self, chance: random.Random, items: Sequence[Item]) -> None:
        assert items
        self._random = chance
        self._items = list(items)
        self._left: list[Item] = []

    def draw(self) -> Item:
        if not self._left:
            self._left = list(self._items)
            self._random.shuffle(self._left)
        return self._left.pop()
