"""Options of the data source: texts from Spark, checked before anything is read."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from spark_backfill.places import HISTORY as HISTORY_URL
from spark_backfill.places import HISTORY_SETTINGS, LOG_PREFIX, LOG_SETTINGS, Places, places_of
from spark_backfill.places import LOG as LOG_URL
from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import Matcher
from tsdb.selector.selectors import parse_selector

HISTORY, LOG, CHUNKS = "history", "log", "chunks"
SOURCES = (HISTORY, LOG, CHUNKS)
SAMPLES, RUNS = "samples", "runs"
ROWS = (SAMPLES, RUNS)
NEWEST, ALL = "newest", "all"
VERSIONS = (NEWEST, ALL)
SPLITS, SPLITS_MAX = 32, 100_000
SPLIT_BYTES, SPLIT_BYTES_MAX = 64 << 20, 1 << 40
LABELS_BYTES, LABELS_BYTES_MAX = 1 << 30, 1 << 40
WAIT_S_MAX = 7 * 24 * 3600
PLACES = (LOG_URL, LOG_PREFIX, LOG_SETTINGS, HISTORY_URL, HISTORY_SETTINGS)
READ = (*PLACES, "source", "selector", "start_ms", "end_ms", "wide", "splits", "split_bytes", "allow_holes", "rows",
        "labels_bytes_max", "partial", "versions")  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Sample times in [start_ms, end_ms), ms since the epoch, UTC. None: no bound."""

    start_ms: int | None = None
    end_ms: int | None = None

    @property
    def bounded(self) -> bool:
        """Whether either end is given."""
        return self.start_ms is not None or self.end_ms is not None

    def within(self, other: TimeSpan) -> TimeSpan:
        """The intersection of both spans."""
        starts = [at for at in (self.start_ms, other.start_ms) if at is not None]
        ends = [at for at in (self.end_ms, other.end_ms) if at is not None]
        return TimeSpan(max(starts, default=None), min(ends, default=None))


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """source: one of SOURCES. matchers: select series; empty: all. wide: labels shown as columns in place of `labels`.

    splits: approximate minimum of input partitions. split_bytes: approximate maximum of chunk bytes in one; a larger
    history gets more input partitions. allow_holes: read past named losses. runs: a row is a run, not a sample.
    labels_bytes_max: memory of a worker for labels of series in the log. partial: read what history holds, although the
    range ends later. all_versions: rows of the log as written, also those of a sample that was written again.
    """

    source: str
    places: Places
    matchers: tuple[Matcher, ...] = ()
    span: TimeSpan = TimeSpan()
    wide: tuple[str, ...] = ()
    splits: int = SPLITS
    split_bytes: int = SPLIT_BYTES
    allow_holes: bool = False
    runs: bool = False
    labels_bytes_max: int = LABELS_BYTES
    partial: bool = False
    all_versions: bool = False

    def splits_of(self, size: int) -> int:
        """Number of input partitions for `size` bytes of chunks, at most SPLITS_MAX."""
        return min(max(self.splits, -(-size // self.split_bytes)), SPLITS_MAX)


def source_options(given: Mapping[str, str], default_source: str = HISTORY) -> SourceOptions:
    """Parse the options of a read; others are left out. Raises InvalidRequest (bad_option, bad_selector, bad_range)."""
    source = given.get("source", default_source)
    if source not in SOURCES:
        raise InvalidRequest(f"option source is {source!r}; want {', '.join(SOURCES)}", reason="bad_option")
    selector = given.get("selector", "")
    wide = tuple(name.strip() for name in given.get("wide", "").split(",") if name.strip())
    return SourceOptions(
        source,
        places_of(given),
        parse_selector(selector) if selector else (),
        span_of(given),
        wide,
        number_of(given, "splits", SPLITS, 1, SPLITS_MAX),
        number_of(given, "split_bytes", SPLIT_BYTES, 1, SPLIT_BYTES_MAX),
        _flag(given, "allow_holes"),
        _runs(given, source),
        number_of(given, "labels_bytes_max", LABELS_BYTES, 1, LABELS_BYTES_MAX),
        _of_source(given, "partial", source, HISTORY) and _flag(given, "partial"),
        _of_source(given, "versions", source, LOG) and _one_of(given, "versions", NEWEST, VERSIONS) == ALL,
    )


def check_names(given: Mapping[str, str], known: Collection[str], what: str) -> None:
    """Raises InvalidRequest (bad_option) for an option that `what`, as "a read", does not have. Case does not count."""
    unknown = sorted({name.lower() for name in given} - set(known))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        meant = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"
        raise InvalidRequest(f"{what} has no option {unknown[0]}{meant}", reason="bad_option")


def _one_of(given: Mapping[str, str], name: str, default: str, known: Collection[str]) -> str:
    text = given.get(name, default)
    if text not in known:
        raise InvalidRequest(f"option {name} is {text!r}; want {' or '.join(known)}", reason="bad_option")
    return text


def _of_source(given: Mapping[str, str], name: str, source: str, wanted: str) -> bool:
    """Whether the source has the option. Raises InvalidRequest (bad_option) when it is given to another one."""
    if name in given and source != wanted:
        raise InvalidRequest(f"option {name} is of the source {wanted}; the source is {source}", reason="bad_option")
    return source == wanted


def _runs(given: Mapping[str, str], source: str) -> bool:
    rows = _one_of(given, "rows", SAMPLES, ROWS)
    if rows == RUNS and source != HISTORY:
        raise InvalidRequest(f"option rows is {RUNS!r}; source {source} has none", reason="bad_option")
    return rows == RUNS


def wait_s_of(given: Mapping[str, str], default_s: float) -> float:
    """Option wait_s: whole seconds that a write waits for the loader; 0: do not wait."""
    return float(number_of(given, "wait_s", int(default_s), 0, WAIT_S_MAX))


def span_of(given: Mapping[str, str]) -> TimeSpan:
    """The span of options start_ms and end_ms. Raises InvalidRequest (bad_option, bad_range)."""
    return check_span(TimeSpan(_time(given, "start_ms"), _time(given, "end_ms")))


def check_span(span: TimeSpan) -> TimeSpan:
    """The span. Raises InvalidRequest (bad_range) when it is empty."""
    if span.start_ms is not None and span.end_ms is not None and span.start_ms >= span.end_ms:
        raise InvalidRequest(f"start_ms {span.start_ms} is not before end_ms {span.end_ms}", reason="bad_range")
    return span


def _time(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(f"option {name} is {text!r}; want ms since the epoch", reason="bad_option") from None


def number_of(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = given.get(name, str(default))
    number = int(text) if text.isdigit() else -1
    if not least <= number <= most:
        raise InvalidRequest(f"option {name} is {text!r}; want {least} to {most}", reason="bad_option")
    return number


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"option {name} is {text!r}; want true or false", reason="bad_option")
    return text == "true"
