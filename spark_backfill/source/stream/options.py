"""Stream options: the options of `spark.readStream.format("tsdb")`, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_backfill.source.options import LOG, READ, SourceOptions, check_names, number_of, source_options
from tsdb.model.errors import InvalidRequest

START, EARLIEST, LATEST = "start", "earliest", "latest"
STARTS = (EARLIEST, LATEST)
RECORDS = "max_records_per_batch"
STREAM_READ = (*READ, START, RECORDS)
# A failed batch is repeated whole. 100,000 records hold minutes of a gateway's writes.
RECORDS_DEFAULT, RECORDS_MAX = 100_000, 1 << 40


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """start: one of STARTS, where a query without a checkpoint begins; unused with a span that has a start_ms.

    records_max: approximate maximum of log records in one batch.
    """

    reading: SourceOptions
    start: str
    records_max: int


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Parse the options of a stream. Raises InvalidRequest (bad_option, bad_selector, bad_range)."""
    check_names(given, STREAM_READ, "a stream")
    reading = source_options(given, LOG)
    if reading.source != LOG:
        raise InvalidRequest(f"option source is {reading.source!r}; a stream has the source log", reason="bad_option")
    if "versions" in given and not reading.all_versions:
        raise InvalidRequest(
            "option versions: a stream has all versions, for it knows no later ones", reason="bad_option"
        )
    start = given.get(START, LATEST)
    if start not in STARTS:
        raise InvalidRequest(f"option start is {start!r}; want {' or '.join(STARTS)}", reason="bad_option")
    if START in given and reading.span.start_ms is not None:
        raise InvalidRequest("options start and start_ms exclude each other", reason="bad_option")
    return StreamOptions(reading, start, number_of(given, RECORDS, RECORDS_DEFAULT, 1, RECORDS_MAX))
