"""Builds the pages of a process that answers queries, from its settings."""

from __future__ import annotations

from tsdb.api.prometheus.api import PrometheusApi
from tsdb.config import QuerierSettings, RulerSettings, StandaloneSettings
from tsdb.config.describe import described
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.http.bodies import BodyRoutes, NoBodyRoutes
from tsdb.query.coverage import coverage
from tsdb.query.sources import Sources
from tsdb.query.stores.routing import best_states
from tsdb.roles.promql import REQUESTS_BYTES_MAX
from tsdb.ui.routes import UiRoutes
from tsdb.ui.sources import UiOptions, UiSources
from tsdb.wire.state import encode_state


def ui_routes(
    settings: QuerierSettings | RulerSettings | StandaloneSettings,
    role: str,
    sources: Sources,
    api: PrometheusApi,
    held: RequestBytes | None = None,
) -> BodyRoutes:
    """The pages over these sources. api: runs their queries. held: see `prometheus_api`."""
    if not settings.ui:
        return NoBodyRoutes()
    ui_sources = UiSources(
        states=lambda: [
            encode_state(state) for state in best_states(sources.stores, sources.topic_id, sources.partitions)
        ],
        coverage=lambda caller: coverage(sources, caller),
        has_history=sources.history is not None,
        partitions=len(sources.partitions),
        role=role,
        settings=lambda: described(settings),
    )
    options = UiOptions(
        points_max=settings.ui_points_max,
        series_max=settings.ui_series_max,
        rows_max=settings.ui_rows_max,
        exemplar_link=settings.ui_exemplar_link,
        is_secure=settings.tls_cert_file is not None,
        has_tokens=settings.token is not None or settings.token_file is not None,
    )
    return UiRoutes(api, ui_sources, options, held or RequestBytes(REQUESTS_BYTES_MAX))
