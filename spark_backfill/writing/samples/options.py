"""Options of a write into the log: texts from Spark, checked before a task begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from ingest.limits import IngestLimits, SeriesLimits
from spark_backfill.places import Places, places_of
from spark_backfill.source.columns import LABELS, PACK_ID, SERIES_ID, TS, VALUE, VERSION, columns_of
from spark_backfill.source.options import HISTORY, LOG, PLACES, check_names
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.model.labels import LabelLimits

TARGET, ON_REFUSED, INGEST_SETTINGS = "target", "on_refused", "ingest_settings"
TARGETS = (HISTORY, LOG)
FAIL, DROP = "fail", "drop"
NEEDED = (LABELS, TS, VALUE)
# A frame that was read from the source has ids, and one from the log also the position of each version. The write
# computes them again.
IGNORED = (SERIES_ID, PACK_ID, *VERSION)
SAMPLE_WRITE = (*PLACES, TARGET, ON_REFUSED, INGEST_SETTINGS)
# Spark passes its own options of a stream to the sink.
STREAM_WRITE = (*SAMPLE_WRITE, "checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """limits: limits of the gateway. drop: refused samples are counted and left out; otherwise they fail the write."""

    places: Places
    limits: IngestLimits = field(default_factory=IngestLimits)
    drop: bool = False


def target_of(given: Mapping[str, str], default: str) -> str:
    """Option target: one of TARGETS. Raises InvalidRequest (bad_option)."""
    target = given.get(TARGET, default)
    if target not in TARGETS:
        raise InvalidRequest(f"option target is {target!r}; want {' or '.join(TARGETS)}", reason="bad_option")
    return target


def sample_options(given: Mapping[str, str], schema: StructType, *, stream: bool) -> SampleOptions:
    """Parse the options and check the frame's columns. Raises InvalidRequest (bad_option, bad_schema)."""
    check_names(given, STREAM_WRITE if stream else SAMPLE_WRITE, "a write into the log")
    _check_columns(schema)
    on_refused = given.get(ON_REFUSED, FAIL)
    if on_refused not in (FAIL, DROP):
        raise InvalidRequest(f"option {ON_REFUSED} is {on_refused!r}; want {FAIL} or {DROP}", reason="bad_option")
    places = places_of(given)
    if not places.log:
        raise InvalidRequest("option log is missing: the URL of the log to write into", reason="bad_option")
    return SampleOptions(places, _limits(given.get(INGEST_SETTINGS, "")), on_refused == DROP)


def _check_columns(schema: StructType) -> None:
    missing = [name for name in NEEDED if name not in schema.names]
    if missing:
        raise InvalidRequest(
            f"the frame has no column {', '.join(missing)}; a sample has the columns {', '.join(NEEDED)}",
            reason="bad_schema",
        )
    unknown = [name for name in schema.names if name not in (*NEEDED, *IGNORED)]
    if unknown:
        raise InvalidRequest(
            f"the frame has the column {', '.join(unknown)}, which would be lost: put it into the map {LABELS}, or drop"
            " it",
            reason="bad_schema",
        )
    columns_of(schema, versions=True)


def _limits(text: str) -> IngestLimits:
    """The gateway's limits, with changes from a JSON object: fields of IngestLimits, labels and series as objects."""
    try:
        given: dict[str, Any] = json.loads(text) if text else {}
        if of_gateway := set(given) & {"source_rates", "token_rates", "limits_file"}:
            raise ValueError(f"{min(of_gateway)} is a limit of a gateway")
        if "labels" in given:
            given["labels"] = LabelLimits(**given["labels"])
        if "series" in given:
            given["series"] = SeriesLimits(**given["series"])
        return IngestLimits(**given)
    except (TypeError, ValueError, ConfigMismatch) as error:
        raise InvalidRequest(f"option {INGEST_SETTINGS}: {error}", reason="bad_option") from error
