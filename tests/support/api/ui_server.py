"""The pages over samples in memory: real sockets, and partition states that a test sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from support.api.prometheus_server import FORM, ApiServer, Got, api_server
from tsdb.api.prometheus.api import PrometheusApi
from tsdb.api.prometheus.call import ApiOptions
from tsdb.model.family import Family
from tsdb.ops.auth import Tokens
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ui.routes import UiRoutes
from tsdb.ui.sources import UiOptions, UiSources
from tsdb.v1 import common_pb2, reader_pb2


@dataclass
class UiServer:
    """states: the states of the partitions, as pages show them."""

    api: ApiServer
    states: list[common_pb2.PartitionState]

    @property
    def port(self) -> int:
        return self.api.server.port

    def get(self, path: str, headers: dict[str, str] | None = None, /, **parameters: Any) -> Got:
        """A page or a file."""
        return self.api.send("GET", path + (f"?{urlencode(parameters)}" if parameters else ""), None, headers or {})

    def ask(self, path: str, headers: dict[str, str] | None = None, /, **parameters: Any) -> Got:
        """A request of a script."""
        return self.api.send("POST", path, urlencode(parameters).encode(), {**FORM, **(headers or {})})


@contextmanager
def ui_server(
    options: UiOptions = UiOptions(),
    *,
    tokens: Tokens | None = None,
    states: Sequence[common_pb2.PartitionState] = (common_pb2.PartitionState(ready=True, from_start=True),),
    has_history: bool = True,
    api_options: ApiOptions = ApiOptions(),
    families: dict[str, Family] | None = None,
    cardinality: reader_pb2.CardinalityResponse = reader_pb2.CardinalityResponse(groups_total=0),
    rule_groups: Callable[[], Sequence[dict[str, Any]]] = list,
    rule_warnings: Sequence[str] = (),
    role: str = "querier",
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[UiServer]:
    known = list(states)
    sources = UiSources(
        states=lambda: known,
        coverage=lambda _caller: reader_pb2.CoverageResponse(partitions=known),
        has_history=has_history,
        partitions=len(known),
        role=role,
        settings=tuple,
    )

    def pages(api: PrometheusApi) -> UiRoutes:
        return UiRoutes(api, sources, options, RequestBytes(64 << 20))

    with api_server(
        api_options,
        tokens=tokens,
        beside=pages,
        families=families,
        cardinality=lambda *_: cardinality,
        rule_groups=rule_groups,
        rule_warnings=rule_warnings,
        settings=settings,
    ) as api:
        yield UiServer(api, known)
