"""Endpoints: the paths of the API, their methods, and the pool of threads that each runs on."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from tsdb.api.prometheus.answer import Representation, Result, failed
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import Failure
from tsdb.api.prometheus.pages import empty, exemplars, federate, lookups, metadata, query, rules, status, syntax
from tsdb.api.prometheus.remote_read import page as remote_read
from tsdb.ops.http.bodies import HttpAnswer

PREFIX = "/api/v1/"
_LABEL, _VALUES = PREFIX + "label/", "/values"
_GET = frozenset({"GET", "OPTIONS"})  # As in Prometheus, only probes and pages answer HEAD.
_GET_POST = _GET | {"POST"}
_POST = frozenset({"POST", "OPTIONS"})


class WorkerPool(enum.Enum):
    """A pool of threads. Lookups have their own, so that they are answered while queries are slow, and queries of
    pages, so that many open pages do not keep those of dashboards and alert rules waiting."""

    QUERY = "query"
    LOOKUP = "lookup"
    PAGE = "page"

    __hash__ = object.__hash__  # The hash of Enum is a function of Python, and each request looks its pool up.


@dataclass(frozen=True, slots=True)
class Endpoint:
    """path: value of the metrics' label; `:name` stands for a part that callers choose. failed: makes the answer to an
    error. cross_origin: whether pages of the origins of the settings may read the answers. may_be_small: whether a
    request may be tried (`small.py`)."""

    path: str
    answer: Callable[[ApiCall], Result | Representation]
    methods: frozenset[str] = _GET
    lane: WorkerPool = WorkerPool.LOOKUP
    failed: Callable[[Failure], HttpAnswer] = failed
    cross_origin: bool = True
    may_be_small: bool = False


FEDERATE, VERSION = "/federate", "/version"
OUTSIDE = frozenset({FEDERATE, VERSION})  # Paths of Prometheus's server outside its API.
LABEL_VALUES = Endpoint(f"{_LABEL}:name{_VALUES}", lookups.label_values)

_ENDPOINTS = {
    one.path: one
    for one in (
        Endpoint(PREFIX + "query", query.instant, _GET_POST, WorkerPool.QUERY, may_be_small=True),
        Endpoint(PREFIX + "query_range", query.ranged, _GET_POST, WorkerPool.QUERY, may_be_small=True),
        Endpoint(PREFIX + "read", remote_read.read, _POST, WorkerPool.QUERY, remote_read.failed),
        Endpoint(PREFIX + "query_exemplars", exemplars.exemplars, _GET_POST),
        Endpoint(PREFIX + "series", lookups.series, _GET_POST),
        Endpoint(PREFIX + "labels", lookups.label_names, _GET_POST),
        Endpoint(PREFIX + "metadata", metadata.metadata),
        Endpoint(PREFIX + "format_query", syntax.format_query, _GET_POST),
        Endpoint(PREFIX + "parse_query", syntax.parse_query, _GET_POST),
        Endpoint(PREFIX + "rules", rules.rules),
        Endpoint(PREFIX + "alerts", rules.alerts),
        Endpoint(PREFIX + "targets", empty.empty({"activeTargets": [], "droppedTargets": []})),
        Endpoint(PREFIX + "targets/metadata", empty.empty([])),
        Endpoint(PREFIX + "scrape_pools", empty.empty({"scrapePools": []})),
        Endpoint(PREFIX + "alertmanagers", rules.alertmanagers),
        Endpoint(PREFIX + "features", status.features),
        Endpoint(FEDERATE, federate.federate, lane=WorkerPool.QUERY, failed=remote_read.failed),
        Endpoint(VERSION, status.version),
        Endpoint(PREFIX + "status/buildinfo", status.build_info),
        Endpoint(PREFIX + "status/runtimeinfo", status.runtime_info),
        Endpoint(PREFIX + "status/flags", status.flags),
        Endpoint(PREFIX + "status/config", status.config),
        Endpoint(PREFIX + "status/tsdb", status.tsdb),
        Endpoint(PREFIX + "status/walreplay", empty.empty({"min": 0, "max": 0, "current": 0})),
    )
}


def endpoint_of(path: str) -> tuple[Endpoint, str] | None:
    """The endpoint of a path, and the variable in it; None for a path without an endpoint."""
    found = _ENDPOINTS.get(path)
    if found is not None:
        return found, ""
    if path.startswith(_LABEL) and path.endswith(_VALUES) and len(path) > len(_LABEL) + len(_VALUES):
        return LABEL_VALUES, path[len(_LABEL) : -len(_VALUES)]
    return None
