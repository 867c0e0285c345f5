"""Builds the Prometheus API of a querier from its settings."""

from __future__ import annotations

from collections.abc import Callable

from tsdb.api.prometheus.api import PrometheusApi
from tsdb.api.prometheus.call import ApiOptions, ApiSources
from tsdb.api.prometheus.pages.metadata import remembered_families
from tsdb.api.prometheus.pages.status import querier_cardinality
from tsdb.config import QuerierSettings, RulerSettings, StandaloneSettings, effective
from tsdb.config.promql import PromqlFields
from tsdb.cpu import core_count
from tsdb.log.interface import Log
from tsdb.log.metadata import read_metadata
from tsdb.model.clock import SystemClock
from tsdb.ops.byte_budget import RequestBytes
from tsdb.promql.evaluate.query import QueryOptions
from tsdb.promql.syntax.features import features_named
from tsdb.query.promql.running import RunningQueries
from tsdb.query.promql.storage import QuerierStorage, SmallStorage
from tsdb.query.shadow.seen import AnswerObserver
from tsdb.query.sources import Sources
from tsdb.reader.read_call import ReadCalls, SelectLimits
from tsdb.rules.remote import RuleGroups

REQUESTS_BYTES_MAX = 64 << 20  # A request has at most 4 MiB.


def prometheus_api(
    settings: QuerierSettings | RulerSettings | StandaloneSettings,
    sources: Sources,
    calls: ReadCalls,
    running: RunningQueries,
    log: Log,
    held: RequestBytes | None = None,
    seen: AnswerObserver | None = None,
    rule_groups: Callable[[], RuleGroups] = RuleGroups,
) -> PrometheusApi:
    """The API over these sources. calls: the bounds that all reads of the process share. running: its running queries.
    held: the budget for the memory of its requests, when other servers share it. rule_groups: see ApiSources.
    """
    limits = SelectLimits(settings.select_series_max, settings.select_samples_max, settings.select_bytes_max)
    api_sources = ApiSources(
        open_storage=lambda caller, accepted: QuerierStorage(sources, limits, calls.of(caller), accepted),
        open_small=None
        if sources.memory is None
        else lambda caller, accepted: SmallStorage(sources, limits, calls.of(caller), accepted),
        families=remembered_families(lambda: read_metadata(log), SystemClock()),
        cardinality=querier_cardinality(sources, calls),
        settings=lambda: effective(settings),
        clock=SystemClock(),
        answers=calls.answers,
        running=running,
        seen=seen,
        rule_groups=rule_groups,
        asks_rulers=isinstance(settings, QuerierSettings) and bool(settings.rulers),
    )
    return PrometheusApi(api_sources, api_options(settings), held or RequestBytes(REQUESTS_BYTES_MAX))


def query_options(fields: PromqlFields) -> QueryOptions:
    """The options of every query, before those of a request."""
    enabled = frozenset(fields.enable_feature)
    return QueryOptions(
        features=features_named(enabled),
        lookback_ms=round(fields.query_lookback_s * 1000),
        delays_name_removal="promql-delayed-name-removal" in enabled,
        values_max=fields.query_values_max,
    )


def api_options(settings: QuerierSettings | RulerSettings | StandaloneSettings) -> ApiOptions:
    return ApiOptions(
        timeout_s=settings.query_timeout_s,
        running_max=settings.query_running_max or max(1, core_count() - 1),
        waiting_max=settings.query_waiting_max,
        query=query_options(settings),
        slow_s=settings.query_slow_s,
        cors_origin=settings.cors_origin,
        send_s=settings.http_request_timeout_s,
    )
