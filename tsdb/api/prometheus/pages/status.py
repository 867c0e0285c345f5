"""Status pages: show build, process, settings, cardinality and features."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.answer import JSON, Representation, Result, json_of, plain
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.cpu import core_count
from tsdb.index.cardinality import By
from tsdb.model.labels import parse_labels
from tsdb.ops.process_metrics import package_version
from tsdb.promql.syntax.functions import AGGREGATIONS, EXPERIMENTAL_AGGREGATIONS, FUNCTIONS
from tsdb.query.cardinality import CardinalityRead
from tsdb.query.sources import Sources
from tsdb.reader.cardinality import cardinality_spec
from tsdb.reader.read_call import Caller, ReadCalls
from tsdb.v1 import reader_pb2

# Version of the API. Clients decide by it which requests they may send. Our own version follows as semantic versioning
# allows.
PROMETHEUS_VERSION = "3.15.0"
TOP, TOP_MAX = 10, 10_000
_KINDS = {
    By.METRIC: reader_pb2.BY_METRIC,
    By.LABEL: reader_pb2.BY_LABEL,
    By.PAIR: reader_pb2.BY_PAIR,
    By.SOURCE: reader_pb2.BY_SOURCE,
}

_STARTED_AT = time.time()


def build_info(call: ApiCall) -> Result:
    """Answers `/api/v1/status/buildinfo`: the versions."""
    return plain(_versions())


def version(call: ApiCall) -> Representation:
    """Answers `/version`: the versions without the envelope of the API."""
    return Representation(iter([json.dumps(_versions()).encode() + b"\n"]), JSON)


def _versions() -> dict[str, str]:
    version = f"{PROMETHEUS_VERSION}+kafka-tsdb.{package_version()}"
    return {"version": version, "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}


def runtime_info(call: ApiCall) -> Result:
    """Answers `/api/v1/status/runtimeinfo`, with empty fields where Go alone has a value."""
    return plain(
        {
            "startTime": _shown_time(_STARTED_AT),
            "CWD": os.getcwd(),
            "hostname": socket.gethostname(),
            "serverTime": _shown_time(call.sources.clock.now_ms() / 1000),
            "reloadConfigSuccess": True,
            "lastConfigTime": _shown_time(_STARTED_AT),
            "corruptionCount": 0,
            "goroutineCount": threading.active_count(),
            "GOMAXPROCS": core_count(),
            "GOMEMLIMIT": 0,
            "GOGC": "",
            "GODEBUG": "",
            "storageRetention": "",
        }
    )


def flags(call: ApiCall) -> Result:
    """Answers `/api/v1/status/flags`: the settings of the process."""
    return plain({name.replace("_", "-"): _shown(value) for name, value in call.sources.settings().items()})


def config(call: ApiCall) -> Result:
    """Answers `/api/v1/status/config`: the settings as YAML, whose values JSON is."""
    lines = [f"{name}: {json_of(value).decode()}\n" for name, value in sorted(call.sources.settings().items())]
    return plain({"yaml": "".join(lines)})


def tsdb(call: ApiCall) -> Result:
    """Answers `/api/v1/status/tsdb`: series in memory, counted by name and label."""
    text = call.form.get("limit")
    try:
        top = parameters.integer(text) if text else TOP
    except ValueError as error:
        raise BadParameter("limit", error) from None
    if not 0 < top <= TOP_MAX:
        raise BadParameter("limit", f"must be from 1 to {TOP_MAX}")
    by_metric, by_label, by_pair = (
        call.sources.cardinality(call.running, kind, top) for kind in (By.METRIC, By.LABEL, By.PAIR)
    )
    starts = [state.coverage_start_ms for state in by_metric.header.partitions]
    return plain(
        {
            "headStats": {
                "numSeries": by_metric.series,
                "numLabelPairs": by_pair.groups_total,
                "chunkCount": 0,
                "minTime": max(starts, default=0),
                "maxTime": call.sources.clock.now_ms(),
            },
            "seriesCountByMetricName": [_count(_values(group), group.series) for group in by_metric.groups],
            "labelValueCountByLabelName": [_count(group.labels.decode(), group.values) for group in by_label.groups],
            "memoryInBytesByLabelName": [],
            "seriesCountByLabelValuePair": [_count(_pair(group), group.series) for group in by_pair.groups],
        }
    )


def features(call: ApiCall) -> Result:
    """Answers `/api/v1/features`: parts of the language that are on."""
    experimental = call.options.query.features.experimental_functions
    language = call.options.query.features._asdict() | {"delayed_name_removal": call.options.query.delays_name_removal}
    functions = {name: experimental or not function.experimental for name, function in FUNCTIONS.items()}
    operators = {name: experimental or name not in EXPERIMENTAL_AGGREGATIONS for name in AGGREGATIONS}
    return plain(
        {
            "api": {"allow_holes": True, "allow_stale": True, "remote_read": True},
            "promql": language,
            "promql_functions": functions,
            "promql_operators": operators,
        }
    )


def querier_cardinality(
    sources: Sources, calls: ReadCalls
) -> Callable[[Caller, By, int], reader_pb2.CardinalityResponse]:
    """A function for ApiSources.cardinality."""

    def count(caller: Caller, by: By, top: int) -> reader_pb2.CardinalityResponse:
        request = reader_pb2.CardinalityRequest(by=_KINDS[by], top=top)
        with calls.of(caller) as call:
            return CardinalityRead(sources, request, cardinality_spec(request), call).response(sources.partitions)

    return count


def _count(name: str, value: int) -> dict[str, Any]:
    return {"name": name, "value": value}


def _values(group: reader_pb2.CardinalityGroup) -> str:
    return ",".join(value for _, value in parse_labels(group.labels))


def _pair(group: reader_pb2.CardinalityGroup) -> str:
    return ",".join(f"{name}={value}" for name, value in parse_labels(group.labels))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _shown_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
